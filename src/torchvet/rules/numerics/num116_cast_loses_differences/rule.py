"""NUM116: large numbers are cast to a type whose steps are as wide as their differences."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from pathlib import PurePath

from torchvet.recording.records.numeric import DIGITS, LostDifference
from torchvet.rules.kit import Finding, RankRecording, Recording, Severity, SourceFile
from torchvet.rules.numerics import _runs, _terms
from torchvet.rules.numerics._runs import NumberRule
from torchvet.source.model import Event, Unit, is_call, keyword, name_set, receiver, targets_of, walk

_ADVICE = "subtract first, in float64 or int64, and cast the differences"
_LAYOUT = name_set("unsqueeze view reshape expand squeeze flatten contiguous clone detach transpose permute roll")
"""What leaves the numbers as they are."""
_CASTS = name_set("float half bfloat16 to type astype tensor as_tensor asarray array FloatTensor Tensor")
_MADE = name_set("tensor as_tensor asarray array FloatTensor Tensor")
"""Those that are given what they cast."""
_NARROW = re.compile(r"\b(?:float32|float16|bfloat16|torch\.float|torch\.half)\b")
_TIMES = re.compile(r"\.timestamp\(|to_datetime|datetime64|(?<![A-Za-z])(?:unix|timestamps?)(?![A-Za-z(])")
"""Text of what is a time since 1970."""


class CastLosesDifferences(NumberRule):
    """Large numbers are cast to a type in which their differences are lost."""

    severity = "warning"
    words = ("timestamp", "unix", "to_datetime", "datetime64")
    fix_changes_results = True
    # A worker may have cast, or NumPy: that a run is silent proves nothing.
    silence_clears = False

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Casts after which much fewer numbers, or differences of neighbors, were different."""
        for record in _runs.by_place(rank, LostDifference):
            what = "gaps between neighbors" if record.what == "differences" else "values"
            message = (
                f"{record.some:,} different {what} become {record.left:,}: {record.dtype} has steps of "
                f"{_step(record):g} at {record.at:.3g}"
            )
            exact = f"{record.dtype} has every whole number up to {DIGITS[record.dtype]:,} only"
            uses = f", and {_line(record)} takes differences of such numbers" if record.subtracted else ""
            severity: Severity = "warning" if record.subtracted else "info"
            yield self.at(rank, record.place, message, f"{exact}{uses}", _ADVICE, severity, record.calls)

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """Times since 1970 that are cast, and subtracted after that."""
        if not (file.mentions("float", "half", "Tensor") and _TIMES.search(file.text)):
            return
        for event in file.calls(*sorted(_CASTS)):
            cast = _cast(file, event)
            if cast is None or not _is_time(file, cast, event):
                continue
            at = _difference(file, event.line, {event.line})
            if at is not None:
                message = f"{file.segment(cast)} is cast here, and line {at} takes differences of it"
                cause = "if these are times since 1970 in seconds, float32 has steps of 128 seconds there"
                yield self.suspect(file, event, message, cause=cause, advice=_ADVICE, severity="info")


def _step(record: LostDifference) -> float:
    return 2.0 ** math.floor(math.log2(record.at)) / (DIGITS[record.dtype] / 2)


def _line(record: LostDifference) -> str:
    """Where differences were taken: the line, of another file with its name."""
    at = record.subtracted
    if at is None or at.path == record.place.path:
        return f"line {at.line}" if at is not None else ""
    return f"{PurePath(at.path).name}:{at.line}"


def _cast(file: SourceFile, event: Event) -> ast.expr | None:
    """What a call casts to few digits."""
    call = event.call
    if is_call(call, *_MADE):
        dtype = keyword(call, "dtype")
        narrow = is_call(call, "FloatTensor", "Tensor") or (dtype is not None and _is_narrow(file, dtype))
        return call.args[0] if narrow and call.args else None
    if not isinstance(call.func, ast.Attribute):
        return None
    given = [*call.args, *(k.value for k in call.keywords)]
    plain = is_call(call, "float", "half", "bfloat16") and not given
    return receiver(call) if plain or any(_is_narrow(file, one) for one in given) else None


def _is_narrow(file: SourceFile, node: ast.expr) -> bool:
    return bool(_NARROW.search(file.segment(node)))


def _is_time(file: SourceFile, node: ast.expr, event: Event) -> bool:
    """Whether something is a time by its text, and no difference of times."""
    names = [one for one in walk(node) if isinstance(one, ast.Name)]
    parts = [node, *(_terms.meaning(one, event)[0] for one in names)]
    if any(_is_small(one) for part in parts for one in walk(part)):
        return False
    return any(_TIMES.search(file.segment(part)) for part in parts)


def _is_small(node: ast.AST) -> bool:
    """Whether a formula makes large numbers small."""
    small = isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Sub, ast.Mod, ast.FloorDiv))
    return small or is_call(node, "diff")


# Differences -----------------------------------------------------------------------------------------------------


def _difference(file: SourceFile, line: int, lines: set[int]) -> int | None:
    """The line that takes differences of what a line casts: within its function, or its class for an attribute."""
    unit = file.unit_at(line)
    names = {name for one in lines if file.unit_at(one) is unit for name in _bound(unit, one)}
    attributes = {name for name in names if "." in name}
    # Of what this line casts: a neighbor's cast has a finding of its own.
    own = {*_bound(unit, line), str(line)}
    for where in _units(unit, bool(attributes)):
        found = _subtracts(where, names if where is unit else attributes, lines, own)
        found = [one for one in found if where is not unit or one >= line]
        if found:
            return found[0]
    return None


def _subtracts(unit: Unit, names: set[str], lines: set[int], own: set[str]) -> list[int]:
    """The lines that take differences of numbers that were cast, some of them among a line's `own`."""
    found = []
    for node in walk(unit.node):
        parts = [_lost(part, names, lines) for part in _operands(node)]
        if parts and all(parts) and not own.isdisjoint(parts):
            found.append(int(getattr(node, "lineno", 0)))
    return found


def _units(unit: Unit, attributes: bool) -> list[Unit]:
    others = unit.owner.methods.values() if attributes and unit.owner is not None else ()
    return [unit, *(one for one in others if one is not unit)]


def _bound(unit: Unit, line: int) -> set[str]:
    """The names and attributes that a statement on a line binds."""
    found = {id(e.statement): e.statement for e in unit.events if e.line == line}.values()
    targets = [target for statement in found for target in targets_of(statement)]
    return {ast.unparse(one) for one in targets if isinstance(one, (ast.Name, ast.Attribute))}


def _operands(node: ast.AST) -> list[ast.expr]:
    """What a difference is of."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return [node.left, node.right]
    if is_call(node, "diff", "ediff1d"):
        on = receiver(node)
        module = on is None or (isinstance(on, ast.Name) and on.id in ("torch", "np", "numpy"))
        return node.args[:1] if module else [on] if on is not None else []
    return []


def _lost(node: ast.expr, names: set[str], lines: set[int]) -> str:
    """The name, or the line, of numbers that were cast, behind parts and shapes of them; empty for anything else."""
    while True:
        if isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) in names:
            return ast.unparse(node)
        if is_call(node, *_CASTS) and node.lineno in lines:
            return str(node.lineno)
        if isinstance(node, ast.Subscript):
            node = node.value
            continue
        inner = receiver(node) if isinstance(node, ast.Call) and is_call(node, *_LAYOUT, *_CASTS) else None
        if inner is None:
            return ""
        node = inner
