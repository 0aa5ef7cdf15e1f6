"""The steps of one rank, apart in what it took of its own and what it waited for others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

from torchvet.recording.records.base import Place
from torchvet.recording.records.ranks import Arrivals, OwnPhase, WaitedAt

_FIRST = 3
"""Steps that pass before time counts: they make buckets, import, fill caches."""
_MOST = 64
"""Steps that are kept."""
_LINES = 12


class StepTimes:
    """One step: what the rank did in each phase, for how long it waited, and for how long the machine held it up."""

    def __init__(self, number: int, looked: float, delay: Callable[[], float]) -> None:
        self.number = number
        self.looked = looked
        self.delay = delay
        self.phase: OwnPhase = "other"
        self.own: dict[OwnPhase, float] = {"data": 0.0, "other": 0.0, "backward": 0.0, "optimizer": 0.0}
        self.waited = self.delayed = 0.0
        self.lines: dict[Place, float] = {}
        """Where it has waited."""
        self.given = self.loaded = 0
        """Elements that the model was called with, and those of the batches."""
        self.paired = False
        """Whether it has sent to one other rank, or received from one."""
        self._since, self._delayed_before = time.perf_counter(), delay()
        self._outer: list[OwnPhase] = []
        self._waiting, self._waiting_since = False, 0.0

    def _charge(self) -> None:
        """What has passed since the last call belongs to what was under way."""
        now, delayed = time.perf_counter(), self.delay()
        passed = now - self._since
        if self._waiting:
            self.waited += passed
        else:
            # The system's count lags: it must not exceed what has passed.
            held_up = min(passed, delayed - self._delayed_before)
            self.own[self.phase] += passed - held_up
            self.delayed += held_up
        self._since, self._delayed_before = now, delayed

    def enter(self, phase: OwnPhase) -> None:
        """Something begins within what is under way."""
        # A loader that was at its end has said nothing more.
        # `batch_asked` has no end where the loader stops iterating.
        if self.phase == "data":
            self.phase = "other"
        self._charge()
        # A loader's batch is no level of its own: nothing runs within it that is told.
        if phase != "data":
            self._outer.append(self.phase)
        self.phase = phase

    def leave(self) -> float:
        """It has ended. For how long it had been waiting by then."""
        self._charge()
        waited = self._since - self._waiting_since if self._waiting else 0.0
        self._waiting = False
        self.phase = self._outer.pop() if self._outer and self.phase != "data" else "other"
        return waited

    def wait(self) -> bool:
        """What comes now is waiting, until it is left or resumed; whether it was not before."""
        # Only the outermost wait counts.
        if self._waiting:
            return False
        self._charge()
        self._waiting, self._waiting_since = True, self._since
        return True

    def resume(self) -> float:
        """The others have come: after how many seconds."""
        self._charge()
        self._waiting = False
        return self._since - self._waiting_since

    def waits_at(self, place: Place | None, seconds: float) -> None:
        """The program stood at a line meanwhile."""
        if place is not None:
            self.lines[place] = self.lines.get(place, 0.0) + seconds

    def end(self) -> None:
        """It ends."""
        if self.phase == "data":
            self.phase = "other"
        self._charge()


class KeptSteps:
    """Some of the steps, spread over the run: which ones goes by their numbers, so that all ranks keep the same."""

    def __init__(self) -> None:
        self._steps: list[StepTimes] = []
        self._halvings = 0
        self._measured = 0
        self._lines: dict[Place, float] = {}
        self._file: int | None = None

    def watch(self, thread: int) -> None:
        """Note from now on how long the system lets this thread wait for a core."""
        with suppress(OSError):
            # Kept open: to open it at each event would cost as much as the event.
            self._file = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)

    def unwatch(self) -> None:
        """Leave no file open."""
        if self._file is not None:
            file, self._file = self._file, None
            with suppress(OSError):
                os.close(file)

    def delayed(self) -> float:
        """Seconds so far for which the thread was ready and had no core; 0 where the system does not say."""
        if self._file is None:
            return 0.0
        try:
            # Second column: nanoseconds ready and waiting for a core.
            return int(os.pread(self._file, 96, 0).split()[1]) * 1e-9
        except (OSError, ValueError, IndexError):
            return 0.0

    def wants(self, number: int) -> bool:
        """Whether a step is one of those that are kept."""
        # Spread as by chance: what a program does in every tenth step is to be seen in as many as there are.
        # `hash` of a tuple of ints is the same in every process; that of a text is not.
        return number > _FIRST and hash((number, 0)) % (1 << self._halvings) == 0

    def add(self, step: StepTimes) -> None:
        """A step has ended."""
        step.end()
        # It waited for one neighbor by design.
        if step.paired:
            return
        self._measured += 1
        for place, seconds in step.lines.items():
            self._lines[place] = self._lines.get(place, 0.0) + seconds
        self._steps.append(step)
        if len(self._steps) >= _MOST:
            # All ranks halve at the same number of kept steps, and so keep the same ones.
            self._halvings += 1
            self._steps = [kept for kept in self._steps if self.wants(kept.number)]

    def forget(self) -> None:
        """Begin anew."""
        self._steps.clear()
        self._lines.clear()
        self._halvings = self._measured = 0

    def record(self) -> Arrivals | None:
        """What is known so far."""
        steps = self._steps
        if not steps:
            return None
        sizes = [step.given or step.loaded for step in steps]
        lines = sorted(self._lines.items(), key=lambda line: -line[1])[:_LINES]
        return Arrivals(
            steps=[step.number for step in steps],
            waited=[_short(step.waited) for step in steps],
            own={phase: [_short(step.own[phase]) for step in steps] for phase in steps[0].own},
            delayed=[_short(step.delayed) for step in steps],
            sizes=sizes if all(sizes) else [],
            lines=[WaitedAt(place=place, seconds=_short(seconds / self._measured)) for place, seconds in lines],
        )


def _short(seconds: float) -> float:
    return round(seconds, 6)
