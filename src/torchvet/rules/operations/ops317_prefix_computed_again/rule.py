"""OPS317: a model computes all earlier tokens again for each new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import percent
from torchvet.recording.records.timing import PrefixComputedAgain as Prefix
from torchvet.rules.kit import Finding, Iterator, RankRecording, Related
from torchvet.rules.shared.line_costs import Cost, LineCostRule

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing
    from torchvet.recording.records.timing import LineTime

_SAME = 0.9
"""The share of the calls in which earlier columns came out as before, from which on they may be kept: in a model that
looks at later columns, or drops some by chance, they do not."""
_COMPARED = 4
_CALLERS = 2
_FEW_LOOKS = 3.0
"""Seconds in the steps in which a line was seen, in looks, from which on these are all that have it."""


class PrefixComputedAgain(LineCostRule):
    """A model computes all earlier tokens again for each new one."""

    severity = "warning"
    silence_clears = False

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Lines that call a model with longer and longer inputs, whose earlier columns come out as before."""
        for seen in rank.latest(Prefix, "id"):
            if seen.compared < _COMPARED or seen.same < _SAME * seen.compared or not seen.seconds:
                continue
            statement = timing.files.statement(seen.place, {})
            below = timing.below(statement.path, statement.line, statement.end)
            parts = [part for part in below if part.phase not in ("data", "backward", "optimizer")]
            cost = _cost(timing, parts, seen)
            if cost.counts:
                yield self._again(rank, seen, cost, max(parts, key=lambda part: part.seconds))

    def _again(self, rank: RankRecording, seen: Prefix, cost: Cost, most: LineTime) -> Finding:
        """`most` is what was seen most of the line, with the lines that had called it."""
        return self.observed(
            rank,
            seen.place,
            f"`{seen.module}` computes all earlier columns again for each new one, in up to {seen.row} calls in a row: "
            f"a cache would save {cost.of_step()}",
            cause=f"in {seen.steps} of {seen.sampled} sampled steps calls were given all that the call before was "
            f"given, and little more: {percent(seen.again / seen.columns)} of their columns had been computed, with "
            f"the same results in {seen.same} of {seen.compared} calls that were compared; "
            f"{percent(seen.saved / seen.seconds)} of the time of these calls grows with such columns; with a cache "
            f"{cost.left()}",
            advice="keep what later columns need of earlier ones (keys and values of attention, the state of a "
            "recurrent layer), and give the model the new columns alone: `past_key_values` with `use_cache=True` in "
            "transformers, whose `generate` does so unless the config, an argument or gradient checkpointing turns "
            "`use_cache` off",
            severity=cost.severity(),
            measured=cost.measured(),
            related=[*self._callers(seen, most)],
        )

    def _callers(self, seen: Prefix, most: LineTime) -> Iterator[Related]:
        """How the program came to the line."""
        way = [most.place, *most.callers]
        own = [n for n, one in enumerate(way) if (one.path, one.line) == (seen.place.path, seen.place.line)]
        for caller in way[own[-1] + 1 :][:_CALLERS] if own else ():
            yield self.beside("caller", f"`{caller.function}` calls it", caller)


def _cost(timing: Timing, parts: list[LineTime], seen: Prefix) -> Cost:
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
