"""OPS312: operators compute in each step what they have computed before, from operands that have not changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import count, percent, size
from torchvet.recording.records.timing import ComputedAgain as Computed
from torchvet.recording.records.timing import RowsSeenAgain
from torchvet.rules.kit import Edits, Finding, Iterator, RankRecording, Related, SourceFile
from torchvet.rules.operations.fixes.full_updates import updated_once
from torchvet.rules.shared.line_costs import Cost, LineCostRule, joined_parts

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing
    from torchvet.recording.records.timing import LineTime
    from torchvet.rules.kit import Place

_STEPS, _PART = 3, 0.8
"""Sampled steps in which a line computed again, and their share of all, from which on it does so in each."""
_CALLERS = 3
_ONE_OF_TWO = "keep one result and use it twice: `.detach()` of the one with gradients, where none is wanted"
_EACH_TURN = (
    "compute it once in the step, before the loop that needs it, and use it in each turn; parametrized weights "
    "(`weight_norm`, `spectral_norm`) are kept within `torch.nn.utils.parametrize.cached()`"
)
_ONCE = "compute it once, before the loop, and keep it: as an attribute, a buffer (`register_buffer`), or a cache"
_CLOSURE = (
    "`optimizer.step(closure)` calls the closure itself and returns its loss: take the loss from there, and do not "
    "call the closure beside it"
)
_TURNS = 4
"""Results of a step that were there already, from which on they are of a loop."""
_TWICE = 0.5
"""The share of the time that went to results of the same step, from which on that is what is said."""
_LATER = 0.8
"""The share of the rows in the later half of a frozen part's calls that came again, from which on nearly all do."""
_ROWS, _LOOKED = 8, 0.2
"""Different rows below which they say nothing (a few constant ones come again in every program), and the share of the
calls that was looked at."""


class ComputedAgain(LineCostRule):
    """Operators compute in each step what they have computed before."""

    severity = "warning"
    silence_clears = False

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """A metric that is updated once for each batch."""
        return updated_once(file, finding)

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Lines whose results were the same in the sampled step before, or earlier in the same one."""
        told: list[LineTime] = []
        for group in _by_calls(rank):
            parts = joined_parts([_own(timing, seen) for seen in group])
            cost = _cost(timing, group)
            if cost.counts:
                told += parts
                yield self._again(rank, timing, group[0], cost, max(parts, key=lambda part: part.seconds))
        yield from self._rows(rank, timing, told)

    def _rows(self, rank: RankRecording, timing: Timing, told: list[LineTime]) -> Iterator[Finding]:
        """Frozen parts whose rows come again. Those that get one same storage in each step have been `told` of."""
        for places, group in _by_places(rank):
            parts = _called_at(timing, places)
            known = any(part is other for part in parts for other in told)
            if parts and not known:
                cost = _cost_of_rows(timing, parts, group)
                if cost.counts:
                    yield self._computes_rows(rank, group, cost, max(parts, key=lambda part: part.seconds))

    def _computes_rows(self, rank: RankRecording, group: list[RowsSeenAgain], cost: Cost, most: LineTime) -> Finding:
        """`most` is what was seen most of the lines that call these parts."""
        seen, place = group[0], group[0].places[0]
        others = f" and {count(len(group) - 1, 'other part')}" if len(group) > 1 else ""
        they = "are frozen and compute rows that they have" if others else "is frozen and computes rows that it has"
        callers = most.callers[1 + max((n for n, c in enumerate(most.callers) if c in seen.places), default=-1) :]
        memory = sum(one.distinct * one.row_bytes for one in group)
        return self.takes(
            rank,
            place,
            f"`{seen.module}`{others} {they} computed before ({seen.again:,} of {seen.rows:,} rows): {cost.of_step()}",
            cost,
            cause=f"its weights do not change, and rows of earlier steps came again with the same results: "
            f"{seen.later_again:,} of {seen.later:,} rows in the later half of {count(seen.looked, 'call')} that were "
            "looked at",
            advice="compute the results once, before the training loop, and keep them by row: those of all rows so far "
            f"take about {size(memory)}",
            related=[self.beside("caller", f"`{caller.function}` calls it", caller) for caller in callers[:_CALLERS]],
        )

    def _again(self, rank: RankRecording, timing: Timing, seen: Computed, cost: Cost, most: LineTime) -> Finding:
        """`most` is what was seen most of its lines, with the lines that had called them."""
        twice = seen.within >= _TWICE * seen.seconds
        what = "a result of the same step is computed again" if twice else "the same result is computed in each step"
        name = seen.module or ("" if seen.place.function == "<module>" else seen.place.function)
        where = f" in `{name}`" if name else ""
        passes = ", in the backward pass" if seen.backward > seen.seconds / 2 else ""
        same = "earlier in the step" if twice else "in the sampled step before"
        back = (
            f"; {percent(seen.led_back / seen.passes)} of the backward pass goes through them"
            if seen.led_back and not passes
            else ""
        )
        return self.takes(
            rank,
            seen.again_at or seen.place,
            f"{what} (`{seen.operator}`{where}{passes}): {cost.of_step()}",
            cost,
            cause=f"in {seen.steps} of {seen.sampled} sampled steps the operands of {count(seen.calls, 'call')} were "
            f"those of a call {same}, unchanged, and so was the result{back}",
            advice=_remedy(timing, seen) if twice else _ONCE,
            related=[*self._called(seen, most)],
        )

    def _called(self, seen: Computed, most: LineTime) -> Iterator[Related]:
        """The line in a library, and how the program came here: what is to be kept may be several calls up."""
        if seen.first_at is not None and seen.again_at is not None:
            yield self.beside("first", "computes the same before, in the same step", seen.first_at)
            if (seen.place.path, seen.place.line) != (seen.again_at.path, seen.again_at.line):
                yield self.beside("most-of-it", "where it is computed", seen.place)
            return
        if seen.inner is not None:
            yield self.beside("called-from", "the call, in a library", seen.inner)
        for caller in most.callers[:_CALLERS]:
            yield self.beside("caller", f"`{caller.function}` calls it", caller)


def _remedy(timing: Timing, seen: Computed) -> str:
    """What to do about results that a step has twice."""
    pair = [at for at in (seen.first_at, seen.again_at) if at is not None]
    if any(".step(" in timing.files.text(at.path, at.line) for at in pair):
        return _CLOSURE
    # More than two calls in each step are those of a loop, where no two lines lead to them.
    return _EACH_TURN if seen.calls >= _TURNS * seen.steps and not pair else _ONE_OF_TWO


def _by_calls(rank: RankRecording) -> list[list[Computed]]:
    """Functions that computed again in each step: those of the same two calls together, which one change serves."""
    found: dict[object, list[Computed]] = {}
    for seen in rank.latest(Computed, "id"):
        # In the first step nothing can have been computed before.
        if seen.steps >= _STEPS and seen.steps >= _PART * (seen.sampled - 1):
            found.setdefault((seen.first_at, seen.again_at) if seen.again_at is not None else seen.id, []).append(seen)
    return [sorted(group, key=lambda one: -one.seconds) for group in found.values()]


def _own(timing: Timing, seen: Computed) -> list[LineTime]:
    """What was seen of a function's lines."""
    lines = {line for line, _ in seen.lines}
    return [part for part in timing.times.lines if part.place.path == seen.place.path and part.place.line in lines]


def _cost(timing: Timing, group: list[Computed]) -> Cost:
    """What the lines take in the steps that are not sampled, by the share of each line's operators; and what backward
    passes take through results that were there already."""
    shares: dict[int, float] = {}
    found: list[LineTime] = []
    for seen in group:
        by_line = dict(seen.lines)
        for part in _own(timing, seen):
            shares[id(part)] = by_line[part.place.line]
            found.append(part)
    back = sum(seen.led_back / seen.passes for seen in group if seen.led_back)
    for part in timing.times.lines if back else ():
        # A pass that is itself computed again is known by its own line.
        if part.phase == "backward" and id(part) not in shares:
            shares[id(part)] = min(1.0, back)
            found.append(part)
    again = sum(part.seconds * shares[id(part)] for part in found)
    seconds = sum(part.seconds for part in found)
    return Cost(timing, found, saved=again / seconds if seconds else 0.0)


def _by_places(rank: RankRecording) -> list[tuple[tuple[Place, ...], list[RowsSeenAgain]]]:
    """Frozen parts whose rows come again, by the lines that call them, those that took most first."""
    found: dict[tuple[Place, ...], list[RowsSeenAgain]] = {}
    for seen in rank.latest(RowsSeenAgain, "id"):
        enough = seen.distinct >= _ROWS and seen.looked >= max(_STEPS, _LOOKED * seen.calls)
        if enough and seen.later_again >= _LATER * seen.later:
            # Frozen layers that follow each other are one part.
            found.setdefault(tuple(seen.places), []).append(seen)
    return [(places, sorted(group, key=lambda one: -one.seconds)) for places, group in found.items()]


def _called_at(timing: Timing, places: tuple[Place, ...]) -> list[LineTime]:
    """What was seen in forward passes at these lines, and below them."""
    at = {(place.path, place.line) for place in places}
    return [
        part
        for part in timing.times.lines
        if part.phase == "forward" and not at.isdisjoint((p.path, p.line) for p in (part.place, *part.callers))
    ]


def _cost_of_rows(timing: Timing, parts: list[LineTime], group: list[RowsSeenAgain]) -> Cost:
    """What the rows that came again take. The lines may call other modules, too: by the seconds of the calls."""
    again = sum(one.seconds / one.steps * one.again / one.rows for one in group)
    line = timing.per_step(sum(part.seconds for part in parts))
    return Cost(timing, parts, saved=min(1.0, again / line) if line else 0.0)
