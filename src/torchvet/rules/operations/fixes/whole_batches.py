"""Edits for a loader that reads tensors in memory row by row: its batches are read by one index."""

from __future__ import annotations

import ast

from torchvet.rules.core.fixing import unit_of
from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model import edits, is_call, walk
from torchvet.source.model.origins import made_by

_BY_PLACE = ("dataset", "batch_size", "shuffle")
_KEPT = frozenset(["dataset", "batch_size", "shuffle", "drop_last", "pin_memory", "num_workers"])
"""Arguments that mean the same for a loader of whole batches, or that have a place in its sampler."""


def whole_batches(file: SourceFile, finding: Finding) -> Edits:
    """`sampler=BatchSampler(…), batch_size=None` in the call that makes the loader of a loop.

    The order stays: the loader's own sampler draws in the same way. Nothing where the loader is not sure, its dataset
    has no name, or it has arguments of which more would change.
    """
    call = _maker(file, finding)
    home = _home(file, call) if call is not None else ""
    # A comment within the call would be lost.
    if call is None or not home or "#" in file.segment(call) or len(call.args) > len(_BY_PLACE):
        return ()
    given: dict[str | None, ast.expr] = dict(zip(_BY_PLACE, call.args, strict=False))
    given.update((one.arg, one.value) for one in call.keywords)
    dataset = given.get("dataset")
    # Written down twice: what a call makes would be two.
    if not isinstance(dataset, (ast.Name, ast.Attribute)) or "batch_size" not in given or set(given) - _KEPT:
        return ()
    if any(isinstance(value, ast.Starred) for value in given.values()):
        return ()
    data = file.segment(dataset)
    size = file.segment(given["batch_size"])
    dropped = file.segment(given["drop_last"]) if "drop_last" in given else "False"
    rows = _rows(file, home, data, given.get("shuffle"))
    rest = "".join(f", {k}={file.segment(given[k])}" for k in ("num_workers", "pin_memory") if k in given)
    made = f"{data}, sampler={home}BatchSampler({rows}, {size}, {dropped}), batch_size=None{rest}"
    return [edits.replace(file, call, f"{file.segment(call.func)}({made})")]


def _rows(file: SourceFile, home: str, data: str, shuffled: ast.expr | None) -> str:
    """The sampler of rows that the loader would make."""
    at_random, in_order = f"{home}RandomSampler({data})", f"{home}SequentialSampler({data})"
    if shuffled is None or isinstance(shuffled, ast.Constant):
        return at_random if isinstance(shuffled, ast.Constant) and shuffled.value else in_order
    return f"{at_random} if {file.segment(shuffled)} else {in_order}"


def _maker(file: SourceFile, finding: Finding) -> ast.Call | None:
    """The call that makes a loop's loader: what its name stands for, else the only one of the file."""
    unit, line = unit_of(file, finding), finding.location.line if finding.location is not None else None
    loops = [] if unit is None else [node for node in walk(unit.node) if isinstance(node, ast.For)]
    for loop in loops:
        if loop.lineno == line and unit is not None:
            made = [value for value, _ in made_by(_looped_over(loop.iter), unit)]
            if len(made) == 1 and isinstance(made[0], ast.Call) and is_call(made[0], "DataLoader"):
                return made[0]
    every = [event.call for event in file.calls("DataLoader")]
    return every[0] if len(every) == 1 else None


def _looped_over(over: ast.expr) -> ast.expr:
    """`loader` of `enumerate(loader)` and `tqdm(loader)`."""
    while isinstance(over, ast.Call) and over.args and not is_call(over, "DataLoader"):
        over = over.args[0]
    return over


def _home(file: SourceFile, call: ast.Call) -> str:
    """How the file calls `torch.utils.data`, with its dot; empty where it has no name for that."""
    if file.dotted(call.func) != "torch.utils.data.DataLoader":
        return ""
    if isinstance(call.func, ast.Attribute):
        return f"{file.segment(call.func.value)}."
    return "torch.utils.data." if file.imports.names.get("torch") == "torch" else ""
