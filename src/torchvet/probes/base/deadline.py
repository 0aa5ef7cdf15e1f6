"""How long a look may take: by the work that it does, for on a busy machine its time is mostly other programs'."""

from __future__ import annotations

import time

# Without it a look on a machine that is overcommitted eightfold or more would stop the program for minutes.
_PATIENCE = 8
"""Seconds by the clock that one second of work may take before the look ends all the same."""


class Deadline:
    """An end so many seconds of this thread's own work from now."""

    def __init__(self, seconds: float) -> None:
        self._work = time.thread_time() + seconds
        self._clock = time.perf_counter() + _PATIENCE * seconds

    def passed(self) -> bool:
        """Whether the time is over."""
        return time.thread_time() > self._work or time.perf_counter() > self._clock

    def left(self) -> float:
        """Seconds of work that are left."""
        return self._work - time.thread_time()
