"""Samples the host's memory at step boundaries over the whole run: often at first, then at ever larger distances."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base import host
from torchvet.probes.base.kit import Host, Place, Record, StepKind, Watcher, frames, tap
from torchvet.probes.internals import private
from torchvet.probes.internals.collectives import numbered
from torchvet.probes.memory.object_lines import ObjectTracing
from torchvet.recording.records.training import HostSamples

_DENSE = 64
"""Steps at first that are all sampled; from then on there are some 44 samples each time that the run doubles."""
_SHARE = 100
"""Times as long as a sample took must pass before the next: glibc walks its free lists, which can take milliseconds."""
_ALLOWANCE = 0.03
"""Seconds that samples may take in all before that holds: a short run would have too few of them."""
_SPACED = 8
"""The part of the steps so far, an eighth, that passes from one sample to the next whatever they take: six each time
that the run doubles cost next to nothing, and what is said of the heap goes by its later half."""
_PENDING = 64
"""Samples that may be lost with a process that is killed."""
_FIRST_VERDICT = 40
"""Steps after which it is asked first whether the heap rises, and then each time that the run has doubled."""
_STARTING = 4
"""The part of the steps so far, a fourth, that says nothing of it: what a program makes once."""
_RISE, _STEEP = 2048, 16384
"""Bytes a step by which its floor rises where Python's objects are to be traced: where the run is long enough to bear
it, and where it is a leak whatever that takes."""
_TRACING_SECONDS = 1.0
"""What tracing takes, roughly, in a program that has imported large libraries."""
_FEW_BLOCKS = 1_000_000
"""Python's blocks up to which it takes a fraction of that: torch alone makes 600,000, a large library three times as
many."""
_MOST_TRACINGS = 3
_RING = 2000
"""Collectives that torch's flight recorder keeps where nobody asks for more or fewer (torch 2.13.0)."""


class HostSampler(Watcher):
    """The host's memory, sampled."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._next_time = 0.0
        self._spent = 0.0
        self._objects = ObjectTracing()
        self._undo.callback(self._objects.end)
        self._tracings = 0
        self._profiler: Place | None = None
        self._restart()

    def install(self) -> None:
        """See where profilers are made: one that is never stopped keeps every event."""
        made = tap(self.host, "profilers", before=self._profiler_made)
        self.replace(torch.autograd.profiler.profile, "__init__", made)

    def _profiler_made(self, *_: Any, **__: Any) -> None:
        self._profiler = frames.user_place()

    def _restart(self) -> None:
        self._last = self._next_tick = self._sampled = 0
        self._verdict = _FIRST_VERDICT
        self._all: list[tuple[int, int]] = []
        self._rises = False
        self._objects.end()
        self._clear()

    def _clear(self) -> None:
        self._ticks: list[int] = []
        self._heap: list[int] = []
        self._resident: list[int] = []
        self._collectives: list[int] = []

    def settle(self, tick: int, kind: StepKind) -> None:
        """A step ended: sample if it is time to."""
        if tick < self._last:
            self._restart()  # ticks began anew: a stronger step signal appeared
        self._last = tick
        # What is noted of sampled steps is in the heap as well, and goes again; so are traces.
        # No samples meanwhile.
        if self._objects.on or self._rises:
            return self._trace(tick)
        # Births and records of a sampled step are torchvet's own objects.
        if self.host.sampling or not self._due(tick):
            return
        # A 64th of the run so far: 44 samples from one doubling to the next (64 · ln 2).
        self._next_tick = tick + max(1, tick // _DENSE)
        self._sample(tick)
        if len(self._ticks) >= _PENDING:
            self._write()
        if tick >= self._verdict and self._tracings < _MOST_TRACINGS:
            self._verdict = 2 * tick
            # From the next boundary on: names may be searched at this one, which takes several times as long then.
            short = sys.getallocatedblocks() < _FEW_BLOCKS
            bears = short or self.host.schedule.affordable(self.host.elapsed(), _TRACING_SECONDS)
            # The first quarter is when caches fill and libraries load.
            self._rises = _rises([s for s in self._all if s[0] >= tick // _STARTING], _RISE if bears else _STEEP)

    def _due(self, tick: int) -> bool:
        """Whether to sample at a boundary outside of sampled steps."""
        dear = self._spent > _ALLOWANCE and time.perf_counter() < self._next_time
        return tick >= self._next_tick and not (dear and tick < self._sampled + max(1, tick // _SPACED))

    def _sample(self, tick: int) -> None:
        start = time.thread_time()  # other programs' interruptions are not the sample's
        # Both: glibc sees no small Python objects, and Python no native memory.
        heap = host.heap_in_use() + host.small_objects() if host.heap_in_use is not None else None
        work = time.thread_time() - start
        self._spent += work
        self._next_time = time.perf_counter() + _SHARE * work
        resident = host.resident()
        self._sampled = tick
        self._ticks.append(tick)
        self._collectives.append(_recorded())
        if heap is not None:
            self._heap.append(heap)
            self._all.append((tick, heap))
        if resident is not None:
            self._resident.append(resident)

    def _trace(self, tick: int) -> None:
        if self._rises:
            self._rises = False
            self._tracings += 1
            return self._objects.begin(tick)
        found = self._objects.boundary(tick, self.host.elapsed())
        if found is not None:
            # A profiler that was stopped has given its events away.
            found.profiler = self._profiler if private.is_profiling() else None
            self.host.write(found)

    def waits(self) -> bool:
        """While objects are traced, or about to be: they are counted at boundaries that are few steps apart."""
        return self._objects.on or self._rises

    def totals(self, tick: int) -> Iterable[Record]:
        """What was sampled since the last time."""
        self._write()
        return ()

    def _write(self) -> None:
        if self._ticks:
            record = HostSamples(ticks=self._ticks, heap=self._heap, resident=self._resident)
            record.collectives = self._collectives if any(self._collectives) else []
            self.host.write(record)
            self._clear()


def _recorded() -> int:
    """Collectives that torch's flight recorder holds, of all process groups and of libraries too."""
    return min(numbered() or 0, _ring()) if private.RECORDS_COLLECTIVES else 0


def _ring() -> int:
    """How many the flight recorder keeps, by the variables that torch goes by."""
    asked = (os.environ.get(name, "") for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"))
    return next((int(text) for text in asked if text.isdecimal()), _RING)


def _rises(samples: list[tuple[int, int]], least: int) -> bool:
    """Whether the lowest sample of each third of the steps is above that of the third before, by `least` a step."""
    third = len(samples) // 3
    if not third:
        return False
    parts = [samples[i * third : (i + 1) * third] for i in range(3)]
    floors = [min(heap for _, heap in part) for part in parts]
    return all(floors[i + 1] - floors[i] > least * (parts[i + 1][0][0] - parts[i][0][0]) for i in range(2))
