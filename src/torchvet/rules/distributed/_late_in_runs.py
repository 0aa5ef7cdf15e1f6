"""Whom the ranks of a run wait for, and how much of it is more than chance and a busy machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torchvet.rules.shared.line_costs import LEAST, LEAST_SHARE

if TYPE_CHECKING:
    from torchvet.analysis.arrivals import Excess, Late, Meetings

_OFTEN = 0.7
"""Of the steps: what makes a rank the one that is late as a rule."""
_EXPLAINS = 0.5
_SOMETIMES = 3
"""Steps, and looks at a line, from which on what a rank does now and then is no accident."""
_BY_SIZE = 0.85
"""Of the steps in which somebody is late: in how many it must be the one with the most to work on."""


class Found(NamedTuple):
    """A rank, by its place among them, that the others wait for: so many seconds a step, in so many of the steps."""

    at: int
    seconds: float
    step: float
    often: int
    usual: bool
    """Whether it is late as a rule; else now and then."""

    @property
    def share(self) -> float:
        """Of the step."""
        return min(1.0, self.seconds / self.step)


def late_rank(meetings: Meetings) -> Found | None:
    """The rank that is late in most steps, else one that a line of its own makes late now and then."""
    found = max(meetings.late, key=lambda late: late.usual)
    least = _least(meetings.step)
    times = found.times(least)
    if found.usual >= least and times >= _OFTEN * len(meetings.numbers):
        return Found(found.index, found.usual, meetings.step, times, usual=True)
    return _now_and_then(meetings, max(meetings.late, key=lambda late: late.mean))


def _now_and_then(meetings: Meetings, late: Late) -> Found | None:
    times = late.times(_least(meetings.step))
    if late.mean < _least(meetings.whole) or times < _SOMETIMES:
        return None
    line = meetings.line(late.index)
    # Only a line that the others do not have tells what a rank does from what has befallen it.
    if line is None or not line.alone or line.looks < _SOMETIMES or line.seconds < _EXPLAINS * late.mean:
        return None
    return Found(late.index, min(late.mean, line.seconds), meetings.whole, times, usual=False)


def late_in_turn(meetings: Meetings) -> Found | None:
    """How long a step waits for whoever has the largest batch, where that is now one rank and now another; the rank
    that is late most often stands for all."""
    if not meetings.sizes:
        return None
    least = _least(meetings.step)
    latest = [max(meetings.late, key=lambda late: late.steps[n]) for n in range(len(meetings.numbers))]
    waits = [late.steps[n] for n, late in enumerate(latest)]
    counting = [n for n, wait in enumerate(waits) if wait >= least]
    by_size = sum(_has_most(meetings, latest[n].index, n) for n in counting)
    if 2 * len(counting) < len(waits) or by_size < _BY_SIZE * len(counting):
        return None
    index = max(range(len(meetings.ranks)), key=lambda i: sum(latest[n].index == i for n in counting))
    return Found(index, sorted(waits)[len(waits) // 2], meetings.step, len(counting), usual=True)


def _has_most(meetings: Meetings, index: int, step: int) -> bool:
    others = [sizes[step] for i, sizes in enumerate(meetings.sizes) if i != index]
    return meetings.sizes[index][step] > max(others)


def names_line(found: Found, line: Excess | None) -> bool:
    """Whether a line's excess is what makes the rank late."""
    return line is not None and line.seconds >= _EXPLAINS * found.seconds


def _least(step: float) -> float:
    return max(LEAST_SHARE * step, LEAST)
