"""The steps of a trace and which of them are set apart. What is said per step holds for the others: the steady ones."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from statistics import median
from typing import Literal, NamedTuple

from torchvet.traces.intervals import Span, around
from torchvet.traces.timeline import Call, Thread, Timeline, Work

Apart = Literal["", "first", "long", "last"]
"""Why a step is set apart: it is one of the first and slow, it is the one slow step among even ones, or it is the last
and holds nothing."""

WHOLE = "the whole trace"
"""What the steps were found by where there are none: one stretch from the first event to the last."""
SLOW = 1.5
"""Times the median of the later steps from which on the first steps are a start, and no steps like the others."""
LONG = 3.0
"""Times the median from which on one step among even ones is no step like the others."""
EMPTY = 0.25
"""Times the median up to which a last step without work is the rest of one."""
FEWEST_LEFT, FEWEST_EVEN = 3, 4
EARLY, FAR = 5.0, 60e6
"""Microseconds: work that begins earlier than this before its launch, or later than this after it, has another clock.
Both clocks' rounding is below the first."""
_Stream = tuple[Thread, Thread]
"""A device, and a queue of it."""


class Step(NamedTuple):
    """One step: when the host took it, and when the device did, which may lag behind. Microseconds."""

    number: int
    start: float
    end: float
    begins: float
    ends: float
    apart: Apart = ""

    @property
    def lasts(self) -> float:
        """How long it took: from the end of what was launched before it to the end of what it launched."""
        return self.ends - self.begins


class Window:
    """Where steps begin and end. `spans` and all that is derived from it are the steady steps'."""

    def __init__(
        self, every: Sequence[Step], found_by: str, thread: Thread | None, asked_at: Callable[[Work], float]
    ) -> None:
        self.every, self.found_by, self.thread, self.asked_at = list(every), found_by, thread, asked_at
        steady = [s for s in every if not s.apart]
        self.steady = steady
        self.starts = [s.start for s in every]
        """Of all steps, those set apart too."""
        self.spans: list[Span] = [(s.start, s.end) for s in steady]
        runs = [list(group) for apart, group in groupby(every, key=lambda s: bool(s.apart)) if not apart]
        self.runs: list[Span] = [(run[0].start, run[-1].end) for run in runs]
        """Steady steps that follow each other, as one stretch of the host's time."""
        self.device_runs: list[Span] = [(run[0].begins, run[-1].ends) for run in runs]
        self.start, self.end = self.runs[0][0], self.runs[-1][1]

    @property
    def known(self) -> bool:
        """Whether these are steps at all."""
        return self.found_by != WHOLE

    @property
    def apart(self) -> list[Step]:
        """The steps that are not like the others."""
        return [s for s in self.every if s.apart]

    def holds(self, time: float) -> bool:
        """Whether a time of the host lies within the steady steps."""
        run = around(self.runs, time)
        return run is not None and time < run[1]


def window_of(
    spans: Sequence[Span], numbers: Sequence[int], found_by: str, thread: Thread | None, timeline: Timeline
) -> Window:
    """The steps with the device's times, and those set apart that are no steps like the others."""
    asked = _asking(timeline, None if found_by == WHOLE else spans[0])
    ready = _ready(timeline, asked)
    steps = [Step(n, a, b, ready(a), ready(b)) for n, (a, b) in zip(numbers, spans, strict=True)]
    if found_by != WHOLE:
        steps = _without_rest(steps, timeline)
        steps = _without_start(steps)
        steps = _without_outlier(steps, timeline)
    return Window(steps, found_by, thread, asked)


def _asking(timeline: Timeline, first_step: Span | None) -> Callable[[Work], float]:
    """By a piece of work, when the host asked for it: at its launch, or before all that was recorded.

    Without a launch, or with one of another clock, it was when the work began.
    """
    launched = [(work, call) for work in timeline.work if (call := _launch(work, timeline))]
    since = min((call.start for _, call in launched), default=math.inf)
    first: dict[_Stream, float] = {}
    for work, _ in launched:
        first[work.device, work.stream] = min(work.start, first.get((work.device, work.stream), math.inf))
    # Where launches are missing later too, or at the beginning of the steps, a missing one says nothing.
    if first_step is None or since > sum(first_step) / 2:
        first = {}
    for work in timeline.work:
        if first.get((work.device, work.stream), math.inf) < work.start and _launch(work, timeline) is None:
            del first[work.device, work.stream]

    def asked(work: Work) -> float:
        call = _launch(work, timeline)
        if call is not None:
            return call.start
        # A stream keeps to the order: what runs before all that was launched was launched earlier.
        earlier = work.start < first.get((work.device, work.stream), -math.inf)
        return -math.inf if earlier else work.start

    return asked


def _launch(work: Work, timeline: Timeline) -> Call | None:
    """The call that launched a piece of work, if it was recorded with the same clock."""
    call = timeline.launches.get(work.correlation)
    return call if call is not None and -EARLY <= work.start - call.start <= FAR else None


def _ready(timeline: Timeline, asked_at: Callable[[Work], float]) -> Callable[[float], float]:
    """By a time of the host, when the device had done what was launched until then; never before that time."""
    asked = sorted((asked_at(work), work.end) for work in timeline.work)
    starts = [start for start, _ in asked]
    ends = list(accumulate((end for _, end in asked), max))

    def ready(time: float) -> float:
        index = bisect_left(starts, time)
        return max(time, ends[index - 1]) if index else time

    return ready


def _without_rest(steps: list[Step], timeline: Timeline) -> list[Step]:
    """The last step is what the profiler stopped in, where it is short and nothing was asked for in it."""
    if len(steps) < 2:
        return steps
    last, usual = steps[-1], median(s.end - s.start for s in steps[:-1])
    if last.end - last.start >= EMPTY * usual:
        return steps
    asked = [i.start for items in (timeline.driver.get("launch", ()), timeline.operators) for i in items]
    worked = any(last.start <= start < last.end for start in asked)
    return steps if worked else [*steps[:-1], last._replace(apart="last")]


def _without_start(steps: list[Step]) -> list[Step]:
    """The first steps, as long as each is much slower than those after it; half of the steps at most."""
    lasts = [s.lasts for s in steps if not s.apart]
    first = 0
    while first < len(lasts) // 2 and _starts(lasts[first], lasts[first + 1 :]):
        first += 1
    return [s._replace(apart="first") if n < first else s for n, s in enumerate(steps)]


def _starts(lasts: float, rest: list[float]) -> bool:
    """Whether a step is much slower than those after it as a rule, and slower than each but one odd one."""
    odd = _odd_one(rest)
    rest = [t for n, t in enumerate(rest) if n != odd]
    enough = len(rest) >= FEWEST_LEFT or (len(rest) == 2 and max(rest) <= SLOW * min(rest))
    return enough and lasts > max(SLOW * median(rest), max(rest))


def _without_outlier(steps: list[Step], timeline: Timeline) -> list[Step]:
    """The one long step among even ones; one that compiles is left in, since that is a fault of its own."""
    steady = [s for s in steps if not s.apart]
    odd = _odd_one([s.lasts for s in steady])
    if odd is None:
        return steps
    long = steady[odd]
    if any(long.start <= item.start < long.end for item in timeline.spans.get("compile", ())):
        return steps
    return [s._replace(apart="long") if s is long else s for s in steps]


def _odd_one(lasts: list[float]) -> int | None:
    """Which of some durations is much longer than all others, which are alike."""
    if len(lasts) <= FEWEST_EVEN:
        return None
    usual, ordered = median(lasts), sorted(lasts)
    return lasts.index(ordered[-1]) if ordered[-1] > LONG * usual and ordered[-2] <= SLOW * usual else None
