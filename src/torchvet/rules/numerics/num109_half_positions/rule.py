"""NUM109: positions are counted in half precision."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from torchvet.recording import records
from torchvet.recording.records.numeric import HalfPositions as Seen
from torchvet.rules import kit
from torchvet.rules.numerics import _runs, _terms
from torchvet.rules.numerics.fixes.full_precision import made_float32, only_widened
from torchvet.rules.shared import half_precision
from torchvet.source.model import Event, Unit, is_call, keyword, name_set, receiver
from torchvet.source.program.scopes import defaults

_EXACT = "{} tells whole numbers apart up to {:,} only"
_ADVICE = "count in float32 or integers, and convert what is computed from the positions"
_LAYOUT = name_set("unsqueeze view reshape expand to cuda repeat flatten squeeze")

_DEEPEST = 4
_CONVERTED = "converted"
"""Positions that were counted in full precision and converted after that."""


class HalfPositions(_runs.NumberRule):
    """Positions are counted in half precision, where many of them are the same number."""

    severity = "warning"
    words = ("arange",)
    fix_changes_results = True
    # The line may have run before the first sampled step: that a run is silent proves nothing.
    silence_clears = False

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> Sequence[kit.Edit]:
        """The one range on the line, or what converts it, in float32."""
        calls = [e for e in kit.events_at(file, finding) if isinstance(e.node, ast.Call)]
        if kit.about(finding).variant == _CONVERTED:
            found = [e for e in calls if is_call(e.node, "half", "bfloat16", "to", "type")]
        else:
            found = [e for e in calls if file.dotted(e.call.func) == "torch.arange"]
        return made_float32(file, found[0].call, found[0].unit) if len(found) == 1 else ()

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> Iterator[kit.Finding]:
        """Ranges whose numbers were counted, and are fewer than there are positions."""
        for record in _runs.by_place(rank, Seen):
            if record.distinct < record.length:
                message = f"{record.length:,} positions have {record.distinct:,} different numbers in {record.dtype}"
                message += ", to which they are converted here" if record.converted else ""
                largest = _runs.figure(record.largest)
                cause = (
                    f"{_EXACT.format(record.dtype, records.numeric.EXACT[record.dtype])}; the largest here is {largest}"
                )
                noted = kit.About(_CONVERTED if record.converted else "")
                yield self.at(rank, record.place, message, cause, _ADVICE, "warning", about=noted)
        told = {record.place.path for record in _runs.by_place(rank, Seen)}
        for table in rank.latest(records.numeric.PositionTable, "module", "attribute"):
            if table.place is not None and table.place.path not in told:
                told.add(table.place.path)
                yield self._table(rank, recording, table)

    def _table(
        self, rank: kit.RankRecording, recording: kit.Recording, table: records.numeric.PositionTable
    ) -> kit.Finding:
        exact = records.numeric.EXACT[table.dtype]
        message = (
            f"`{table.module}.{table.attribute}` has {table.length:,} rows by position, of which {table.distinct:,} "
            f"differ from the row before; all do up to row {exact}"
        )
        cause = f"{_EXACT.format(table.dtype, exact)}: the positions were counted in it, when the table was made"
        at = _counts_at(recording, table) or table.place
        return self.at(rank, at, message, cause, f"{_ADVICE}: a buffer follows the model's dtype", "warning")

    def in_file(self, file: kit.SourceFile) -> Iterator[kit.Finding]:
        """`arange` with a half dtype, or one that is converted to half, unless it is short."""
        if not file.mentions(*half_precision.WORDS):
            return
        for event in file.calls("arange"):
            if file.dotted(event.call.func) == "torch.arange":
                dtype = keyword(event.call, "dtype")
                kind = half_precision.named(file, dtype, event.unit) or self._passed(file, dtype, event.unit)
                if kind:
                    yield from self._judge(file, event, event.call, event, kind)
        for event in file.calls("half", "bfloat16", "to", "type"):
            found = self._converted(event)
            if found is not None:
                yield from self._judge(file, event, *found)

    @staticmethod
    def _passed(file: kit.SourceFile, dtype: ast.expr | None, unit: Unit) -> str:
        """The half dtype that all callers of this file give for a parameter."""
        if not isinstance(dtype, ast.Name) or unit.home(dtype.id) is not unit or dtype.id in unit.bindings:
            return ""
        kinds = {half_precision.named(file, given, where) for given, where, _ in _given(file, unit, dtype.id)}
        return kinds.pop() if len(kinds) == 1 else ""

    @staticmethod
    def _converted(event: Event) -> tuple[ast.Call, Event, str] | None:
        """The `arange` that a call converts to half, its event and the dtype."""
        file, on = event.unit.file, receiver(event.call)
        kind = half_precision.converts(file, event.call, event.unit)
        if on is None or not kind:
            return None
        value, at = _terms.meaning(on, event)
        # A conversion in between decides the dtype, and is judged at its own call.
        while is_call(value, *_LAYOUT) and not half_precision.converts(file, value, at.unit):
            inner = receiver(value)
            if inner is None:
                break
            value, at = _terms.meaning(inner, at)
        made = isinstance(value, ast.Call) and file.dotted(value.func) == "torch.arange"
        return (value, at, kind) if made and isinstance(value, ast.Call) else None

    def _judge(self, file: kit.SourceFile, event: Event, call: ast.Call, at: Event, kind: str) -> Iterator[kit.Finding]:
        last, step = self._last(call, at)
        dtype = half_precision.NAMES[kind]
        exact = records.numeric.EXACT[dtype] * step
        # `arange(4096)` has 769 different values in bfloat16; a short range is exact.
        if last is None or last > exact:
            message = f"{file.segment(call)} in {dtype}: positions above {exact} share their numbers"
            cause = _EXACT.format(dtype, records.numeric.EXACT[dtype])
            severity: kit.Severity = "info" if last is None else "warning"
            made = made_float32(file, event.call, event.unit) if only_widened(event.call, event) else ()
            yield self.suspect(file, event, message, cause=cause, advice=_ADVICE, severity=severity, edits=made)

    @staticmethod
    def _last(call: ast.Call, at: Event) -> tuple[float | None, int]:
        """The last number of a range and its step; None where the text does not say."""
        given = [_number(a, at.unit) for a in call.args]
        step = given[2] if len(given) > 2 else 1.0
        stop = given[0] if len(given) == 1 else given[1] if len(given) > 1 else None
        whole = int(step) if step is not None and step >= 1 and step == int(step) else 1
        even = whole & -whole  # multiples of a power of two are exact for longer
        return (None if stop is None else stop - whole), even


def _counts_at(recording: kit.Recording, table: records.numeric.PositionTable) -> kit.Location | None:
    """The only line of the module's class that makes a range; ranges with a step are those of frequencies."""
    file = recording.model(table.place.path) if table.place is not None else None
    ranges = [e for e in file.calls("arange") if len(e.call.args) < 3] if file is not None else []
    found = {e.line: e for e in ranges if e.unit.owner is not None and e.unit.owner.name == table.module}
    if file is None or len(found) != 1:
        return None
    ((line, event),) = found.items()
    return kit.Location(path=file.path, line=line, function=event.unit.qualname)


def _given(file: kit.SourceFile, unit: Unit, name: str, depth: int = 0) -> list[tuple[ast.expr, Unit, bool]]:
    """What a parameter is in this file: what callers give, over parameters of their own, or its default where one
    gives nothing, each with the unit that it stands in and whether it is given: a function that nobody here calls has
    its default, unless somebody else gives it another."""
    default = dict(defaults(unit.node)).get(name) if not isinstance(unit.node, ast.Module) else None
    home = unit.parent or unit
    callers = file.callers(unit)
    if not callers:
        return [(default, home, False)] if default is not None else []
    found: list[tuple[ast.expr, Unit, bool]] = []
    for event in callers:
        given, where = file.passed(event, unit, name), event.unit
        if not given and default is not None:
            found.append((default, home, True))
        for one in given:
            if isinstance(one, ast.Name) and _is_parameter(one, where) and depth < _DEEPEST:
                found += _given(file, where, one.id, depth + 1)
            else:
                found.append((one, where, True))
    return found


def _is_parameter(node: ast.Name, unit: Unit) -> bool:
    return node.id in unit.parameters and node.id not in unit.bindings


def _number(node: ast.expr, unit: Unit) -> float | None:
    """The number that an expression is, or the largest that a parameter is in this file, where each is known. A default
    that others may raise says something only where it is large already."""
    if not isinstance(node, ast.Name) or not _is_parameter(node, unit):
        return _terms.number(node, unit)
    found = [(_terms.number(given, where), sure) for given, where, sure in _given(unit.file, unit, node.id)]
    known = [n for n, sure in found if n is not None and (sure or n > max(records.numeric.EXACT.values()))]
    return max(known) if known and len(known) == len(found) else None
