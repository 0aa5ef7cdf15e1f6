"""OPS312: operators compute in each step what they have computed before, from operands that have not changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import count
from torchvet.recording.records.timing import ComputedAgain as Again
from torchvet.rules.kit import Finding, Iterator, RankRecording, Related
from torchvet.rules.shared.line_costs import Cost, LineCostRule

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing
    from torchvet.recording.records.timing import LineTime

_STEPS, _PART = 3, 0.5
"""Sampled steps in which a line computed again, and their share of all, from which on it does so in each."""
_CALLERS = 3
_TWICE = 0.5
"""The share of the time that went to results of the same step, from which on that is what is said."""


class ComputedAgain(LineCostRule):
    """Operators compute in each step what they have computed before."""

    severity = "warning"
    silence_clears = False

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Lines whose results were the same in the sampled step before, or earlier in the same one."""
        for seen in rank.latest(Again, "id"):
            if seen.steps < _STEPS or seen.steps < _PART * seen.sampled:
                continue
            shares = dict(seen.lines)
            parts = [p for p in timing.times.lines if p.place.path == seen.place.path and p.place.line in shares]
            cost = _cost(timing, parts, shares)
            if cost.counts:
                yield self._again(rank, seen, cost, max(parts, key=lambda part: part.seconds))

    def _again(self, rank: RankRecording, seen: Again, cost: Cost, most: LineTime) -> Finding:
        """`most` is what was seen most of its lines, with the lines that had called them."""
        twice = seen.within >= _TWICE * seen.seconds
        what = "a result of the same step is computed again" if twice else "the same result is computed in each step"
        where = seen.module or seen.place.function
        passes = ", in the backward pass" if seen.backward > seen.seconds / 2 else ""
        same = "earlier in the step" if twice else "in the sampled step before"
        once = (
            "compute it once, before the loop, and keep it: as an attribute, a buffer (`register_buffer`), or a cache"
        )
        return self.takes(
            rank,
            seen.place,
            f"{what} (`{seen.operator}` in `{where}`{passes}): {cost.of_step()}",
            cost,
            cause=f"in {seen.steps} of {seen.sampled} sampled steps the operands of {count(seen.calls, 'call')} were "
            f"those of a call {same}, unchanged, and so was the result",
            advice="keep the first result and use it twice" if twice else once,
            related=[*self._called(seen, most)],
        )

    def _called(self, seen: Again, most: LineTime) -> Iterator[Related]:
        """The line in a library, and how the program came here: what is to be kept may be several calls up."""
        if seen.inner is not None:
            yield self.beside("called-from", "the call, in a library", seen.inner)
        for caller in most.callers[:_CALLERS]:
            yield self.beside("caller", f"`{caller.function}` calls it", caller)


def _cost(timing: Timing, parts: list[LineTime], shares: dict[int, float]) -> Cost:
    """What the lines take in the steps that are not sampled, by the share of each line's operators."""
    seconds = sum(part.seconds for part in parts)
    again = sum(part.seconds * shares[part.place.line] for part in parts)
    return Cost(timing, parts, saved=again / seconds if seconds else 0.0)
