"""Edits for a loader that reads tensors in memory row by row: its batches are read by one index."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model import Event, edits, terminal, walk

_HOME = "torch.utils.data"
_BY_PLACE = ("dataset", "batch_size", "shuffle")
_KEPT = frozenset(["dataset", "batch_size", "shuffle", "drop_last", "pin_memory", "num_workers"])
"""Arguments that mean the same for a loader of whole batches, or that have a place in its sampler."""


def whole_batches(file: SourceFile, finding: Finding) -> Edits:
    """`sampler=BatchSampler(…), batch_size=None` in the call that makes the loader of a loop.

    The order stays: the loader's own sampler draws in the same way. Nothing where the loader is not sure, its dataset
    has no name, or it has arguments of which more would change.
    """
    made = maker_of(file, finding)
    # Of whole batches a loader's own size is None.
    if made is None or any(isinstance(node, ast.Attribute) and _is_loaders_size(node) for node in walk(file.tree)):
        return ()
    call = made.call
    given = _given(file, call)
    names = _names(file, call, _samplers(given)) if given is not None else None
    if given is None or names is None:
        return ()
    home, imported = names
    text = {name: file.segment(value) for name, value in given.items()}
    each = [f"{home}{kind}({text['dataset']})" for kind in _samplers(given)]
    rows = each[0] if len(each) == 1 else f"{each[0]} if {text['shuffle']} else {each[1]}"
    batches = f"{home}BatchSampler({rows}, {text['batch_size']}, {text.get('drop_last', 'False')})"
    rest = "".join(f", {name}={text[name]}" for name in ("num_workers", "pin_memory") if name in text)
    whole = f"{file.segment(call.func)}({text['dataset']}, sampler={batches}, batch_size=None{rest})"
    return [edits.replace(file, call, whole), *imported]


def _is_loaders_size(node: ast.Attribute) -> bool:
    return node.attr in ("batch_size", "batch_sampler") and "load" in terminal(node.value).lower()


def _given(file: SourceFile, call: ast.Call) -> dict[str, ast.expr] | None:
    """The arguments of a loader by name; None where whole batches would change what one of them means."""
    # A comment within the call would be lost.
    if "#" in file.segment(call) or len(call.args) > len(_BY_PLACE):
        return None
    by_place = zip(_BY_PLACE, call.args, strict=False)
    given = {**dict(by_place), **{one.arg or "**": one.value for one in call.keywords}}
    # Written down twice: what a call makes would be two.
    named = isinstance(given.get("dataset"), (ast.Name, ast.Attribute))
    plain = not any(isinstance(value, ast.Starred) for value in given.values())
    return given if named and plain and "batch_size" in given and not set(given) - _KEPT else None


def _samplers(given: Mapping[str, ast.expr]) -> list[str]:
    """The samplers of rows that the loader would make; both, where it depends."""
    shuffled = given.get("shuffle", ast.Constant(value=False))
    if isinstance(shuffled, ast.Constant):
        return ["RandomSampler" if shuffled.value else "SequentialSampler"]
    return ["RandomSampler", "SequentialSampler"]


def maker_of(file: SourceFile, finding: Finding) -> Event | None:
    """The call that makes a loop's loader: on the line where the run saw it, else the only one of the file."""
    every = file.calls("DataLoader")
    seen = [(r.path, r.line) for r in finding.related if r.role == "made"]
    made = [event for event in every if (file.path, event.call.lineno) in seen] if seen else [*every]
    return made[0] if len(made) == 1 else None


def _names(file: SourceFile, call: ast.Call, samplers: list[str]) -> tuple[str, Edits] | None:
    """What stands before names of `torch.utils.data`, and the edits that import those that the file lacks; None where
    it is not that module's loader."""
    if file.dotted(call.func) != f"{_HOME}.DataLoader":
        return None
    if isinstance(call.func, ast.Attribute):
        return f"{file.segment(call.func.value)}.", []
    found = (s for s in file.imports.statements if isinstance(s, ast.ImportFrom) and s.module == _HOME)
    statement = next(found, None)
    missing = [name for name in ("BatchSampler", *samplers) if file.imports.names.get(name) != f"{_HOME}.{name}"]
    # Another module's class of that name would be hidden by the import.
    if statement is None or any(name in file.imports.names for name in missing):
        return None
    end = edits.end_of(file, statement.names[-1])
    return "", [edits.insert(file, end, "".join(f", {name}" for name in missing))] if missing else []
