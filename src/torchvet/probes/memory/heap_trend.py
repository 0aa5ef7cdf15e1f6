"""Notices slow growth of the host's memory, so that what is stored once in many steps is looked for at all."""

from __future__ import annotations

import itertools
import time
from bisect import bisect_left

from torchvet.probes.base import host

_EVERY = 4
# Twelve samples at every fourth boundary: four to a third.
_FIRST = 48
_FEWEST = 9
"""Samples that tell whether a floor rises, three to a third; before there are so many nothing is judged."""
_SLOW = 0.0005
"""Seconds of one sample from which on it costs more than it tells."""
_TIMES_SLOW = 3
"""Samples that took so long before another is taken: any call may be slow once."""
_LEAST = 1 << 18
_LEAST_RESIDENT = 1 << 23
"""Bytes by which a floor must rise: of the heap in use, which is exact, and of the resident set, which also grows with
what the allocator keeps."""
_STEEP = 1 << 19
"""Bytes a step, from one floor to the next, that are not waited for to rise on: what a program loads and caches in its
first steps is over by then."""


class HeapTrend:
    """Samples the heap in use (about 10 µs), or the resident set where that takes long, at every fourth boundary; says
    when its floor keeps rising."""

    def __init__(self) -> None:
        self._samples: list[int] = []
        self._ticks: list[int] = []
        self._next = _FIRST
        self._exact = host.heap_in_use is not None
        self._slow = 0
        self._peaks: list[int] = []
        self.times = 0
        """Verdicts in a row by which the floor rises; a steep rise counts as two."""

    def restart(self) -> None:
        """Ticks begin at one again."""
        self._clear()
        self._next = _FIRST
        self.times = 0

    def _clear(self) -> None:
        self._samples, self._ticks = [], []

    def peak(self, size: int) -> bool:
        """Whether the peaks of the last three sampled windows, in bytes, rose by a percent each."""
        self._peaks = [*self._peaks[-2:], size]
        return len(self._peaks) == 3 and all(a * 1.01 < b for a, b in itertools.pairwise(self._peaks))

    def boundary(self, tick: int) -> bool:
        """Whether the floor of the last third lies above that of the third before by more than noise, as far as is
        known: judged anew each time that the run is half as long again."""
        if tick % _EVERY == 0:
            self._sample(tick)
        return self.times > 0

    def _sample(self, tick: int) -> None:
        start = time.thread_time()  # by the clock other programs' interruptions would add up over a long run
        size = host.heap_in_use() if self._exact and host.heap_in_use is not None else host.resident()
        if size is None:
            return
        self._samples.append(size)
        self._ticks.append(tick)
        self._slow += time.thread_time() - start > _SLOW
        if self._exact and self._slow >= _TIMES_SLOW:
            # glibc walks its free lists: after many small allocations a call takes milliseconds.
            self._exact = False
            # Samples of two kinds do not compare.
            self._clear()
        # Fast steps of a long run are asked ever more rarely: how far samples are apart shows in their ticks alone.
        if tick >= self._next and len(self._samples) >= _FEWEST:
            self._next = tick * 3 // 2
            rises = self._rises(0) or self._rises_late(tick)
            self.times = self.times + rises if rises else 0

    def _rises_late(self, tick: int) -> int:
        """Growth may begin late, as with the second of two trainings: the first half of the run has less then. What had
        more is filled again, as at the next epoch."""
        half = bisect_left(self._ticks, tick // 2)
        late = self._samples[half:]
        fresh = max(self._samples[:half], default=0) < min(late[-(len(late) // 3 or 1) :])
        return self._rises(half) if fresh else 0

    def _rises(self, first: int) -> int:
        """1 if the samples from this one on rise, 2 if they do so steeply."""
        samples, ticks = self._samples[first:], self._ticks[first:]
        if not rising(samples, _LEAST if self._exact else _LEAST_RESIDENT):
            return 0
        return 1 + rising(samples, _STEEP * (ticks[-1] - ticks[0] + _EVERY) // 3)


def rising(samples: list[int], least: int = _LEAST) -> bool:
    """Whether each third's minimum is above the one before, the last by `least` bytes and a quarter of a percent."""
    third = len(samples) // 3
    if len(samples) < _FEWEST:
        return False
    floors = [min(samples[i * third : (i + 1) * third]) for i in range(3)]
    rise = floors[2] - floors[1]
    # The minimum of a third is the floor: peaks within steps, caches that come and go stay above it.
    return floors[0] < floors[1] and rise > max(least, floors[1] // 400)
