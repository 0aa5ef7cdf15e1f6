"""The steps of a run as the recording has them, and how a run of a fixed number of steps ends."""

from __future__ import annotations

import threading
import time

from torchvet.recording.records.base import Step, StepKind
from torchvet.recording.writer import RecordingWriter


# A program's `except Exception` does not catch it, and the interpreter prints no traceback of it.
class StepsReached(SystemExit):
    """Raised inside the program at a step boundary once the wanted number of steps has passed."""

    def __init__(self, steps: int) -> None:
        # Status 0: the program was ended as it was asked to.
        super().__init__(0)
        self.steps = steps


_PLAIN_STEPS = 1000
"""Steps that get a line each; later ones share lines, so that a recording of a long run stays small."""
_ALWAYS = 64
_APART = 0.05
"""Steps that get a line each however short they are; from then on lines are at least so many seconds apart: writing one
takes twenty times as long after a step, which has emptied the caches, as it takes alone."""


class StepLog:
    """Writes step records: one a step at first, then one for ever more steps."""

    def __init__(self, writer: RecordingWriter, started: float) -> None:
        self._writer = writer
        self._started = started
        self._counts: dict[StepKind, int] = {}
        self.phases: dict[str, float] = {}
        self._before: dict[str, float] = {}
        """Seconds of the phases of all lines that were written."""
        self._thread = 0
        """The one whose step the last line is of; 0 before the first."""
        self._aside: dict[int, dict[str, float]] = {}
        """What was accounted for on other threads since."""
        self._last = started
        self._n = 0
        self._memory: tuple[int, int] | None = None

    def add(self, phase: str, seconds: float) -> None:
        """Account for seconds of a phase."""
        here = threading.get_ident()
        # A thread that loads ahead takes no time of the steps; which threads make steps shows when they have.
        phases = self.phases if self._thread in (0, here) else self._aside.setdefault(here, {})
        phases[phase] = phases.get(phase, 0.0) + seconds

    def seconds(self, phase: str) -> float:
        """Seconds of a phase since the beginning. Asked by another thread: a line that is being written may count
        twice for a moment."""
        return self._before.get(phase, 0.0) + self.phases.get(phase, 0.0)

    def count(self, n: int, kind: StepKind, steps: int = 1) -> None:
        """Steps ended that get no line of their own: one, or a few that were recognised late."""
        self._counts[kind] = self._counts.get(kind, 0) + steps
        self._n = n

    def boundary(self, n: int, kind: StepKind, steps: int, memory: tuple[int, int] | None) -> None:
        """Steps ended; a line is written if it is time for one."""
        self.count(n, kind, steps)
        self._memory = memory
        now = time.perf_counter()
        if n > _ALWAYS:
            # Every 10th from step 1,000 on, every 100th from 10,000 on.
            share = max(1, 10 ** (len(str(n)) - len(str(_PLAIN_STEPS))) * 10) if n >= _PLAIN_STEPS else 1
            if n % share or now - self._last < _APART:
                return
        self._put(now)

    def flush(self) -> None:
        """What comes next goes by the steps so far: write those that wait for a line."""
        if self._counts:
            self._put(time.perf_counter())

    def _put(self, now: float) -> None:
        here, aside, self._aside = threading.get_ident(), self._aside, {}
        if here != self._thread:
            for name, seconds in aside.get(here, {}).items():
                self.phases[name] = self.phases.get(name, 0.0) + seconds
            self._thread = here
        phases = {k: round(v, 7) for k, v in self.phases.items()}
        self._before = {k: self._before.get(k, 0.0) + self.phases.get(k, 0.0) for k in {*self._before, *self.phases}}
        # What belongs to no phase: data preparation, logging, the forward pass.
        phases["other"] = round(max(0.0, now - self._last - sum(phases.values())), 7)
        counts, self._counts = self._counts, {}  # other threads go on counting
        for one, count in counts.items():
            step = Step(n=self._n, kind=one, t=round(now - self._started, 6), count=count, phases=phases)
            step.allocated, step.reserved = self._memory or (None, None)
            self._writer.write(step)
            # Seconds go to the first kind only: those of several kinds are not told apart.
            phases = {}
        self.phases = {}
        self._last = now
