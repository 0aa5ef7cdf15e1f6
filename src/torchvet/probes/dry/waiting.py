"""Loops that wait for a number: in a dry run it never comes, since unknown numbers are read as always the same."""

from __future__ import annotations

import time
from collections.abc import Callable

from torchvet.probes.base import frames
from torchvet.recording.records.base import Place

READS, SECONDS = 2000, 20.0
"""Reads by one line with no pass of a model, no batch and no backward pass in between, and what they take of the
processor's time, from which on it waits."""
PASSES, LONG = 100_000, 120.0
"""The same where passes of a model lie in between, as in evaluations, which end."""


class Waiting:
    """Counts the reads of a line. `ended` is the line that waited."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        # Two counts of the same reads: reset by any pass of a model, and by training steps alone.
        self._quiet: dict[Place | None, tuple[int, float]] = {}
        self._all: dict[Place | None, tuple[int, float]] = {}
        self.ended: Place | None = None
        self.reads = 0

    def passed(self) -> None:
        """A model was called, or a batch asked for."""
        self._quiet.clear()

    def stepped(self) -> None:
        """A step ended, or a backward pass."""
        self._quiet.clear()
        self._all.clear()

    def read(self) -> None:
        """The program read a number that nobody knows. Ends the run where it waits for another one."""
        # Of the processor: on a busy machine a slow loop must not look like a waiting one.
        place, now = frames.user_place(2), time.process_time()
        for counted, most, seconds in ((self._quiet, READS, SECONDS), (self._all, PASSES, LONG)):
            reads, began = counted.get(place, (0, now))
            counted[place] = reads + 1, began
            if reads + 1 >= most and now - began >= seconds:
                self.ended, self.reads = place, reads + 1
                self._end()
                return
