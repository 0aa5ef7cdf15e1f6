"""Counts the collectives that a rank has called, by steps: where ranks wait for each other for good, the step in which
one has called fewer than the others may lie long before, if sizes happened to fit.

Process groups number their collectives themselves. Nothing is wrapped, and nothing is asked of other ranks.
"""

from __future__ import annotations

from torchvet.probes.internals.collectives import numbered
from torchvet.recording.records.ranks import Called, CalledIn

_MOST = 256
"""Stretches of steps with as many collectives each that are kept. The oldest go first."""


class CallCounts:
    """How many collectives of all ranks this rank has called in each step."""

    def __init__(self) -> None:
        self._from: tuple[int, int] | None = None
        """The step before the first that is known, and how many collectives had been called by its end."""
        self._at = (0, 0)
        """The same of the last step."""
        self._stretches: list[CalledIn] = []

    def step(self, number: int) -> None:
        """The step of this number has ended."""
        total = numbered(of_all_ranks=True)
        if total is None:
            return
        (before, called), self._at = self._at, (number, total)
        # Steps are counted anew or were not heard of, or the group is another one.
        if self._from is None or number != before + 1 or total < called:
            self._from, self._stretches = self._at, []
            return
        calls = total - called
        if self._stretches and self._stretches[-1].calls == calls:
            self._stretches[-1].last = number
            return
        self._stretches.append(CalledIn(last=number, calls=calls))
        if len(self._stretches) > _MOST:
            oldest = self._stretches.pop(0)
            step, sum_ = self._from
            self._from = oldest.last, sum_ + (oldest.last - step) * oldest.calls

    def record(self) -> Called | None:
        """What is known so far."""
        if self._from is None or not self._stretches:
            return None
        return Called(step=self._from[0], total=self._from[1], stretches=list(self._stretches))
