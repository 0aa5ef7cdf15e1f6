"""Notices slow growth of the host's heap, so that what is stored once in many steps is looked for at all."""

from __future__ import annotations

import itertools
import sys
import time

from torchvet.probes import host

_EVERY = 4
_FIRST = 48
_SLOW = 0.0005
"""Seconds of one sample from which on it costs more than it tells."""
_LEAST = 1 << 18


class HeapTrend:
    """Samples the heap in use (about 10 µs) at every fourth boundary; says when its floor keeps rising."""

    def __init__(self) -> None:
        self._samples: list[int] = []
        self._next = _FIRST
        self._slow = False
        self._peaks: list[int] = []

    def peak(self, size: int) -> bool:
        """Whether the peaks of the last three sampled windows, in bytes, rose by a percent each."""
        self._peaks = [*self._peaks[-2:], size]
        return len(self._peaks) == 3 and all(a * 1.01 < b for a, b in itertools.pairwise(self._peaks))

    def boundary(self, tick: int) -> bool:
        """Whether the floor of the last third lies above that of the third before by more than noise."""
        if host.heap_in_use is None or self._slow or tick % _EVERY:
            return False
        # glibc walks its free lists: after many small allocations a call takes milliseconds. Then it is asked no more.
        start = time.perf_counter()
        self._samples.append(host.heap_in_use())
        if time.perf_counter() - start > _SLOW:
            self._next = sys.maxsize
            self._slow = True
        if tick < self._next:
            return False
        self._next = tick * 2
        return rising(self._samples)


def rising(samples: list[int]) -> bool:
    """Whether each third's minimum is above the one before, the last by 256 KiB and a quarter of a percent at least."""
    third = len(samples) // 3
    if third < 3:
        return False
    floors = [min(samples[i * third : (i + 1) * third]) for i in range(3)]
    rise = floors[2] - floors[1]
    return floors[0] < floors[1] and rise > max(_LEAST, floors[1] // 400)
