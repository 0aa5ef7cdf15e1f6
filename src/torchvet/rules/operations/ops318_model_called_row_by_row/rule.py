"""OPS318: a loop calls a model once for each row of a batch."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from torchvet.formatting import ms
from torchvet.recording.records.base import Place
from torchvet.recording.records.timing import Differentiated, RepeatedPasses, RowCalls
from torchvet.rules.kit import Finding, Iterator, RankRecording
from torchvet.rules.shared.line_costs import Cost, LineCostRule

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing
    from torchvet.recording.records.timing import LineTime

_QUICKER = 0.8
"""What all rows at once take of the loop's time, up to which it is worth a word."""
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_TEXTS: dict[Differentiated, tuple[str, str]] = {
    "": ("forward", "one call with all rows; with a loss, `reduction='none'` gives that of each row"),
    "summed": (
        "forward and backward",
        "one call with all rows, and one backward pass from the sum of their losses (`reduction='none'` gives that of "
        "each row). It holds the activations of all rows: where memory is short, call it with a part of them at a time",
    ),
    "each": (
        "forward and backward",
        "the gradients of each row by one call: `torch.func.vmap(torch.func.grad(loss_of_one), in_dims=(None, 0, 0))"
        "(parameters, x, y)`, with `torch.func.functional_call` in `loss_of_one`. It holds one gradient of all "
        "parameters for each row (`chunk_size` makes that fewer); their norms alone can be had by hooks, from each "
        "layer's input and the gradient of its output",
    ),
}
"""By what becomes of the gradients: what was timed, and what to do."""


class _Loop(NamedTuple):
    """A loop's lines, with what was seen there."""

    path: str
    first: int
    last: int
    parts: list[LineTime]


class ModelCalledRowByRow(LineCostRule):
    """A loop calls a model once for each row of a batch."""

    severity = "warning"
    silence_clears = False

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Loops that would be quicker as one call, by what was measured."""
        passes = [seen.place for seen in rank.latest(RepeatedPasses, "place")]
        for seen in rank.all(RowCalls):
            loop = _loop(timing, seen)
            # OPS308 has told of it: one graph that each row differentiates.
            if any(at.path == loop.path and loop.first <= at.line <= loop.last for at in passes):
                continue
            cost = _cost(timing, seen, _working(rank, loop.parts))
            if cost is not None and cost.counts:
                yield self._called(rank, seen, loop, cost)

    def _called(self, rank: RankRecording, seen: RowCalls, loop: _Loop, cost: Cost) -> Finding:
        passes, advice = _TEXTS[seen.differentiated]
        timed = f"{seen.timed} rows take {ms(seen.timed * seen.one)} one by one, and {ms(seen.together)} at once"
        related = []
        if loop.first != seen.place.line or loop.path != seen.place.path:
            related.append(self.beside("loop", "the loop", Place(loop.path, loop.first, seen.place.function)))
        return self.observed(
            rank,
            seen.place,
            f"{seen.module} is called for one row at a time, {_often(seen)}: one call with all rows would save "
            f"{cost.of_step()}",
            cause="each call dispatches every operator anew, for one row; no row needs what was computed for another. "
            f"Measured after the run on tensors made alike, {passes}: {timed}; {cost.without()}",
            advice=advice,
            severity=cost.severity(),
            measured=cost.measured(),
            related=related,
        )


def _loop(timing: Timing, seen: RowCalls) -> _Loop:
    """The innermost loop around the call, or around the line that led to it."""
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
            return _Loop(place.path, *lines, parts)
    return _Loop(seen.place.path, *own, timing.below(seen.place.path, *own))


def _working(rank: RankRecording, parts: list[LineTime]) -> list[LineTime]:
    """Those whose lines run operators: other work stays what it is."""
    from torchvet.analysis.line_times import operators_of

    _, operators = operators_of(rank)
    return [part for part in parts if (part.place.path, part.place.line) in operators]


def _cost(timing: Timing, seen: RowCalls, loop: list[LineTime]) -> Cost | None:
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


def _often(seen: RowCalls) -> str:
    turns = seen.loops / seen.sampled
    if round(turns) <= 1:
        return f"{seen.rows} times in a step" if turns >= 0.75 else f"{seen.rows} times in some steps"
    return f"{seen.rows} times in each of {round(turns)} loops of a step"
