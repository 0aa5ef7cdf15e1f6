"""What a line costs in a run, by the clock of lines: said and graded in one way, whichever rule speaks of the line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import ms, percent
from torchvet.rules.kit import (
    NOTHING_MORE,
    About,
    Finding,
    Findings,
    Measured,
    Place,
    RankRecording,
    Recording,
    Related,
    Rule,
    Severity,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torchvet.analysis.host_work import Work
    from torchvet.analysis.line_times import Timing
    from torchvet.recording.records.timing import LineTime

LEAST_SHARE = 0.05
LEAST = 0.0003
"""Of a step, and seconds of it: a line that takes less is no finding."""
SHARE, A_STEP, IN_ALL = 0.25, 0.003, 1.0
"""The share, the seconds in a step and the seconds in the watched steps from which on a line matters. A healthy program
whose steps take a millisecond waits for its data, writes a line of its log and reads its loss for half of it."""
_SEEN = 12
"""Looks at a line below which its time is chance."""
_GROWN, _GROWN_LOOKS = 1.5, 48
"""Times that a line takes in the last third of the steps what it took in the first, beside the rest of the step, and
looks at it, from which on it grows. Chosen, not measured."""


class Cost:
    """The time of some parts of a step: in a step, of all that was watched, and what the step would take without.

    With `saved` it is that share of their time. With `alone` the line that takes most says how often they run: several
    short ones of one call are each seen in some other steps.
    """

    def __init__(self, timing: Timing, parts: Sequence[LineTime], saved: float = 1.0, alone: bool = False) -> None:
        self._timing = timing
        self.seconds = saved * sum(part.seconds for part in parts)
        self.looks = sum(part.looks for part in parts)
        self.steps = timing.times.steps
        self.a_step = timing.per_step(self.seconds)
        self.grown = _grown(timing, parts)
        """Their share in the first third of the steps and in the last; None where they do not grow."""
        # Of what was watched, and not of the median step: looks are of these steps.
        self.share = timing.share(self.seconds)
        asked = sorted(parts, key=lambda part: -part.seconds)[:1] if alone else list(parts)
        self.often = timing.rare(asked) if asked else None
        """In what share of the steps they run; None where that is about all, or unknown."""

    @property
    def counts(self) -> bool:
        """Whether enough was seen of it, and it is more than a trifle."""
        return self.looks >= _SEEN and self.share >= LEAST_SHARE and self.a_step >= LEAST

    def severity(self, share: float = SHARE, a_step: float = A_STEP) -> Severity:
        """A warning where the share, the time of a step and that of the run are all worth one."""
        # All three: half of a millisecond's step is nothing, and neither is a second of an hour's.
        matters = self.share >= share and self.a_step >= a_step and self.seconds >= IN_ALL
        return "warning" if matters and self.looks >= _SEEN else "info"

    def of_step(self) -> str:
        """`12.3 ms of a step of 80.0 ms (15 %)`."""
        return f"{ms(self.a_step)} of a step of {ms(self._timing.step)} ({percent(self.share)})"

    def without(self, hidden: str = "") -> str:
        """What a step would take without, at best; with `hidden`, which says what else is saved, that or less."""
        # "20 times faster" would be a promise that no measure backs.
        if self.a_step >= 0.95 * self._timing.step:
            return "next to nothing would be left of the step without it"
        if hidden:
            return f"without it a step would take {ms(self._timing.step - self.a_step)} or less: {hidden}"
        return f"without it {self.left()}"

    def left(self) -> str:
        """What a step would take then; the rest of it may overlap with what is gone."""
        left = self._timing.step - self.a_step
        return f"a step would take {ms(left)} at the least, {self._timing.step / left:.1f} times faster at most"

    def measured(self) -> Measured:
        """For a finding."""
        return Measured(seconds_per_step=self.a_step, share=min(1.0, self.share), steps=self.steps)


def _grown(timing: Timing, parts: Sequence[LineTime]) -> tuple[float, float] | None:
    known = [part.thirds for part in parts if part.thirds is not None]
    whole = timing.times.thirds
    first, last = sum(one[0] for one in known), sum(one[-1] for one in known)
    if whole is None or not 0 < first <= last or sum(part.looks for part in parts) < _GROWN_LOOKS:
        return None
    rest_first, rest_last = whole[0] - first, whole[-1] - last
    # Beside the rest of the step: a machine that became busy, or idle, changes both alike.
    return (first / whole[0], last / whole[-1]) if last * rest_first >= _GROWN * first * rest_last else None


class LineCostRule(Rule):
    """A rule about what lines cost in the steps of a run, which `in_time` yields."""

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """What lines cost, where the run has timed them."""
        from torchvet.analysis.line_times import timing_of

        timing = timing_of(rank)
        if timing is not None:
            yield from self.in_time(rank, timing)

    def in_time(self, rank: RankRecording, timing: Timing) -> Findings:
        """Yield what the timed lines of one rank show."""
        raise NotImplementedError

    def takes(
        self, rank: RankRecording, place: Place | None, message: str, cost: Cost, *, cause: str, advice: str,
        severity: Severity | None = None, related: Sequence[Related] = (), about: About = NOTHING_MORE,
        hidden: str = "",
    ) -> Finding:  # fmt: skip
        """A finding about a cost, graded by it unless a severity is given. `hidden`: see `Cost.without`."""
        return self.observed(
            rank,
            place,
            message,
            cause=f"{cause}; {cost.without(hidden)}",
            advice=advice,
            severity=severity or cost.severity(),
            measured=cost.measured(),
            related=related,
            about=about,
        )


def works_of(rank: RankRecording, timing: Timing, told: Sequence[LineTime] = ()) -> list[tuple[Work, Cost]]:
    """The host's work in the steps, each with what it costs, without the parts that are `told` as something else."""
    from torchvet.analysis.host_work import FILES, HostWork
    from torchvet.analysis.line_times import operators_of

    works = HostWork(timing, operators_of(rank)[1]).works(told)
    return [(work, Cost(timing, work.parts, alone=work.kind == FILES)) for work in works]


def joined_parts(groups: Iterable[Sequence[LineTime]]) -> list[LineTime]:
    """All parts of several groups."""
    return [part for group in groups for part in group]
