"""Calls of a model whose work another form would save: earlier columns that are computed again, rows that go through
one by one. What one rule reports of them no other reports as something else."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from torchvet.recording.records.timing import PrefixComputedAgain, RepeatedPasses, RowCalls
from torchvet.rules.kit import Iterator, RankRecording
from torchvet.rules.shared.line_costs import Cost

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing
    from torchvet.recording.records.timing import LineTime

_SAME = 0.9
"""The share of the calls in which earlier columns came out as before, from which on they may be kept: in a model that
looks at later columns, or drops some by chance, they do not."""
_COMPARED = 4
_FEW_LOOKS = 3.0
"""Seconds in the steps in which a line was seen, in looks, from which on these are all that have it."""
_QUICKER = 0.8
"""What all rows at once take of the loop's time, up to which it is worth a word."""
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Prefixes(NamedTuple):
    """A line that calls a model with longer and longer inputs, what was seen of it, and what a cache would save."""

    seen: PrefixComputedAgain
    parts: list[LineTime]
    cost: Cost


class RowLoop(NamedTuple):
    """A loop's lines that calls a model row by row, what was seen of it, and what one call would save."""

    seen: RowCalls
    path: str
    first: int
    last: int
    parts: list[LineTime]
    cost: Cost


def prefixes_of(rank: RankRecording, timing: Timing) -> Iterator[Prefixes]:
    """Lines whose earlier columns come out as before, and that take a part of the step."""
    for seen in rank.latest(PrefixComputedAgain, "id"):
        if seen.compared < _COMPARED or seen.same < _SAME * seen.compared or not seen.seconds:
            continue
        statement = timing.files.statement(seen.place, {})
        below = timing.below(statement.path, statement.line, statement.end)
        parts = [part for part in below if part.phase not in ("data", "backward", "optimizer")]
        cost = _without_prefixes(timing, parts, seen)
        if cost.counts:
            yield Prefixes(seen, parts, cost)


def row_loops_of(rank: RankRecording, timing: Timing) -> Iterator[RowLoop]:
    """Loops that would be quicker as one call, by what was measured, and that take a part of the step."""
    passes = [seen.place for seen in rank.latest(RepeatedPasses, "place")]
    for seen in rank.all(RowCalls):
        path, first, last, parts = _loop(timing, seen)
        # OPS308 reports it: one graph that each row differentiates.
        if any(at.path == path and first <= at.line <= last for at in passes):
            continue
        parts = _working(rank, parts)
        cost = _at_once(timing, seen, parts)
        if cost is not None and cost.counts:
            yield RowLoop(seen, path, first, last, parts, cost)


def _without_prefixes(timing: Timing, parts: list[LineTime], seen: PrefixComputedAgain) -> Cost:
    """What the line takes, by the share of its calls that they would save."""
    line = sum(part.seconds for part in parts)
    saved = seen.saved / seen.seconds
    # Operators are a part of a call: no more than theirs, in all steps that have the line.
    if line and not seen.timed:
        steps = max(part.steps for part in parts)
        # A line that takes less than a look's interval is seen in few of the steps that have it.
        if line < _FEW_LOOKS * timing.times.interval * steps:
            steps = timing.times.steps
        saved = min(saved, seen.saved / max(1, seen.steps) * steps / line)
    return Cost(timing, parts, saved=min(1.0, saved))


def _loop(timing: Timing, seen: RowCalls) -> tuple[str, int, int, list[LineTime]]:
    """The innermost loop around the call, or around the line that led to it: its lines, and what was seen there."""
    for place in (seen.place, *seen.callers):
        statement = timing.files.statement(place, {})
        own = statement.line, statement.end
        lines = timing.files.loop(place.path, place.line)
        if statement.node is not None and any(isinstance(one, _COMPREHENSIONS) for one in ast.walk(statement.node)):
            lines = own
        if lines is not None:
            parts = timing.below(place.path, *lines)
            # The loop of the steps is none over rows: `map` calls it.
            if any(part.phase == "optimizer" for part in parts):
                lines, parts = own, timing.below(place.path, *own)
            return place.path, *lines, parts
    return seen.place.path, *own, timing.below(seen.place.path, *own)


def _working(rank: RankRecording, parts: list[LineTime]) -> list[LineTime]:
    """Those whose lines run operators: other work stays what it is."""
    from torchvet.analysis.line_times import operators_of

    _, operators = operators_of(rank)
    return [part for part in parts if (part.place.path, part.place.line) in operators]


def _at_once(timing: Timing, seen: RowCalls, loop: list[LineTime]) -> Cost | None:
    """What one call would save; None where that is little of the loop."""
    # The backward pass after the loop goes through all rows, one by one.
    known = {id(part) for part in loop}
    after = [part for part in timing.times.lines if seen.late and part.phase == "backward" and id(part) not in known]
    everything = sum(part.seconds for part in (*loop, *after))
    now = sum(part.seconds for part in loop) + seen.late * sum(part.seconds for part in after)
    # What is around the operators, calls of modules and nodes of autograd's, is taken to shrink as they do.
    kept = seen.together / (seen.timed * seen.one) if seen.one else 1.0
    if not now or kept > _QUICKER:
        return None
    return Cost(timing, [*loop, *after], saved=now * (1 - kept) / everything)
