"""Which rank comes late to the collectives of a run: arithmetic on how long each has waited, no judgment.

A collective ends on all ranks together. Who waits least has come last, by as much as the others wait longer.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median
from typing import TYPE_CHECKING

from torchvet.analysis.line_times import timing_of
from torchvet.recording.records.base import Place
from torchvet.recording.records.ranks import Arrivals, OwnPhase
from torchvet.recording.records.timing import WorkerTimes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchvet.recording import RankRecording
    from torchvet.recording.records.timing import LineTime

ENOUGH = 12
"""Steps below which it is chance who is late."""
_NEARLY = 0.8
"""The share of a rank's excess that a line must have, with what it calls, to be told for it."""


@dataclass
class Late:
    """How late one rank is in each step, in seconds: negative where others are later."""

    index: int
    steps: list[float]

    @cached_property
    def usual(self) -> float:
        """In the middle one of the steps."""
        return median(self.steps)

    @cached_property
    def mean(self) -> float:
        """On the average; where it is early it counts for nothing."""
        return fmean(max(0.0, late) for late in self.steps)

    def times(self, seconds: float) -> int:
        """In how many steps it is as late as this."""
        return sum(late >= seconds for late in self.steps)


@dataclass
class Excess:
    """A line that one rank spends more time at than the others do: by so many seconds a step."""

    place: Place
    seconds: float
    phase: str
    alone: bool
    """Whether the others spend next to nothing there."""
    looks: int = 0


class Meetings:
    """The steps that all ranks have kept, held against each other."""

    def __init__(self, ranks: Sequence[RankRecording], records: Sequence[Arrivals]) -> None:
        self.ranks = ranks
        self.records = records
        # By the step's number: a rank may have begun to measure later, and dropped steps of its own.
        self.numbers = sorted(set(records[0].steps).intersection(*(r.steps for r in records[1:])))
        self._at = [{n: i for i, n in enumerate(r.steps)} for r in records]
        self.waited = [self._column(i, r.waited) for i, r in enumerate(records)]
        self._delayed = [self._column(i, r.delayed) for i, r in enumerate(records)]
        # Of all ranks or of none: a ratio to a rank without sizes would be one to nothing.
        self.sizes = [self._column(i, r.sizes) for i, r in enumerate(records)] if all(r.sizes for r in records) else []

    def _column(self, index: int, values: Sequence[float]) -> list[float]:
        at = self._at[index]
        return [values[at[number]] for number in self.numbers]

    @cached_property
    def _own(self) -> list[list[float]]:
        return [
            [sum(one) for one in zip(*(self._column(i, own) for own in r.own.values()), strict=True)]
            for i, r in enumerate(self.records)
        ]

    @cached_property
    def _lengths(self) -> list[float]:
        """Of each step: on the rank that took most."""
        parts = list(zip(self._own, self.waited, self._delayed, strict=True))
        return [
            max(own[n] + waited[n] + delayed[n] for own, waited, delayed in parts) for n, _ in enumerate(self.numbers)
        ]

    @cached_property
    def step(self) -> float:
        """Seconds of the middle step."""
        return median(self._lengths)

    @cached_property
    def whole(self) -> float:
        """Seconds of a step on the average."""
        return fmean(self._lengths)

    @cached_property
    def late(self) -> list[Late]:
        """Each rank's lateness: by how much the others wait longer, as far as it took longer of its own. What the
        machine held up is none of the program's."""
        found = []
        for index, (waited, own) in enumerate(zip(self.waited, self._own, strict=True)):
            others = [o for o in range(len(self.ranks)) if o != index]
            steps = [
                min(
                    # The lesser of both: a rank that waits less because its clock is off, or that
                    # works more while nobody waits, is not late.
                    median(self.waited[o][n] for o in others) - waited[n],
                    # Medians, as one other rank may be late as well.
                    own[n] - median(self._own[o][n] for o in others),
                )
                for n in range(len(self.numbers))
            ]
            found.append(Late(index, steps))
        return found

    def longer(self, index: int, usual: bool = True) -> tuple[OwnPhase, float]:
        """In which phase a rank's own time exceeds the others' most, and by how much a step."""
        middle = median if usual else fmean
        more: dict[OwnPhase, float] = {}
        for phase in self.records[index].own:
            own = [middle(self._column(i, r.own.get(phase, []))) for i, r in enumerate(self.records)]
            more[phase] = own[index] - median(o for i, o in enumerate(own) if i != index)
        phase = max(more, key=lambda one: more[one])
        return phase, more[phase]

    def line(self, index: int) -> Excess | None:
        """The line at which a rank spends more time of its own than the others, by the most, what it calls counted in;
        None where there is none, or that is not known of each."""
        # With one rank's lines missing, each of the others' would look like an excess.
        columns = [_by_line(rank, record) for rank, record in zip(self.ranks, self.records, strict=True)]
        if not all(columns):
            return None
        found = []
        for place, (seconds, phase, looks) in columns[index].items():
            usual = median(c.get(place, (0.0, "", 0))[0] for i, c in enumerate(columns) if i != index)
            found.append((seconds, Excess(place, seconds - usual, phase, usual < 0.1 * seconds, looks)))
        most = max(excess.seconds for _, excess in found)
        # Lines are seen by looks at some steps: those may have none of what makes the rank late.
        if most <= 0:
            return None
        # A line has what it calls: the innermost one that has nearly all is told.
        return min((pair for pair in found if pair[1].seconds >= _NEARLY * most), key=lambda pair: pair[0])[1]

    def others_wait_at(self, index: int) -> Place | None:
        """The line at which the other ranks wait longest."""
        lines = [line for i, record in enumerate(self.records) if i != index for line in record.lines]
        return max(lines, key=lambda one: one.seconds).place if lines else None

    def sized(self, index: int) -> float | None:
        """How many times as much a rank gets to work on as the others, on the average; None where that is unknown."""
        if not self.sizes:
            return None
        means = [fmean(sizes) for sizes in self.sizes]
        # A mean size below 1 is none to divide by.
        return means[index] / max(1.0, median(m for i, m in enumerate(means) if i != index))


def meetings_of(ranks: Sequence[RankRecording]) -> Meetings | None:
    """None where not all of several ranks have measured enough of the same steps."""
    records = [record for rank in ranks if (record := rank.last(Arrivals)) is not None]
    if len(records) < 2 or len(records) < len(ranks):
        return None
    found = Meetings(ranks, records)
    return found if len(found.numbers) >= ENOUGH else None


def _by_line(rank: RankRecording, record: Arrivals) -> dict[Place, tuple[float, str, int]]:
    """Seconds of a step by line, those of what it calls among them and without those that were waiting, with the phase
    and the looks that saw it. Lines from which the whole step is run are left out."""
    timing = timing_of(rank)
    if timing is None:
        return {}
    waiting = {line.place: line.seconds for line in record.lines}
    # `main()` and the call of `train_epoch()` would have the whole excess and name nothing.
    around = {place for one in timing.times.lines if one.phase in ("backward", "optimizer") for place in one.callers}
    found: dict[Place, tuple[float, str, int]] = {}
    for one in timing.times.lines:
        seconds = timing.per_step(one.seconds)
        # Waiting is recorded by line alone, looks by line and callers: it is spread over them until used up.
        waited = min(seconds, waiting.get(one.place, 0.0))
        waiting[one.place] = waiting.get(one.place, 0.0) - waited
        # The loop over a loader has all that loading takes, and says nothing of why.
        callers = one.callers if one.phase != "data" else ()
        for place in {one.place, *callers} - around:
            before, _, looks = found.get(place, (0.0, "", 0))
            found[place] = (before + seconds - waited, one.phase, looks + one.looks)
    return found


def worker_line(rank: RankRecording, others: Sequence[RankRecording]) -> Place | None:
    """The line of a loader's workers that makes its batches take longer than on the other ranks."""
    mine = _of_workers(rank)
    theirs = [_of_workers(other) for other in others]
    more = {place: seconds - median(t.get(place, 0.0) for t in theirs) for place, seconds in mine.items()}
    place = max(more, key=lambda one: more[one], default=None)
    return place if place is not None and more[place] > 0 else None


def _of_workers(rank: RankRecording) -> dict[Place, float]:
    times = rank.last(WorkerTimes)
    found: dict[Place, float] = defaultdict(float)
    lines: Sequence[LineTime] = times.lines if times is not None else ()
    for one in lines:
        found[one.place] += one.seconds
    return found
