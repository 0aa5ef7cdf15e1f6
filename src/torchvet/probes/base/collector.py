"""Watches Python's cyclic collector: how often, how long, and which sampled storages only it could free."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

from torchvet.probes.base import host
from torchvet.probes.base.ledger import sum_by_site
from torchvet.probes.base.watcher import Host, Watcher
from torchvet.recording.records.training import CollectorUse

_FIRST = 2
"""Steps after which the heap is read at collections: the first ones import, which leaves garbage as well."""
_OLDEST = 2
"""The generation with which all objects are collected: what has survived two collections waits for that."""
# glibc walks the free lists of every arena when asked: about 10 µs usually, and far more on a fragmented heap.
_SLOW = 0.0005
_TIMES_SLOW = 8
"""Collections whose reading of the heap took so many seconds before it is not read any more."""


class CollectorProbe(Watcher):
    """Python's cyclic collector, by `gc.callbacks`. Storages that die within a collection were held by a cycle."""

    always = True

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._ledger = host.ledger
        self._started = 0.0
        self.total = CollectorUse(collections=0, seconds=0.0)
        self._heap = 0
        self._slow = 0
        self._since: int | None = None
        # Steps and not collections: what a collector frees in one step may come in several collections.
        self._ticks: set[int] = set()
        self._sample: list[Any] = []

    def install(self) -> None:
        """Listen to the collector."""
        gc.callbacks.append(self._call)

    def finish(self, how: str, error: BaseException | None) -> None:
        """What torchvet collects from now on is not the program's."""
        # torchvet's last censuses collect garbage themselves; their storages and seconds would count as the
        # program's.
        self.remove()

    def remove(self) -> None:
        """Stop listening."""
        if self._call in gc.callbacks:
            gc.callbacks.remove(self._call)

    def _call(self, phase: str, info: dict[str, int]) -> None:
        ledger = self._ledger
        if phase == "start":
            self._started = time.perf_counter()
            # Weak references of storages die within the collection, and the ledger gathers them until
            # `stop`.
            ledger.collecting = True
            self._heap = self._heap_in_use()
            return
        ledger.collecting, total = False, self.total
        total.collections += 1
        # Whether garbage has outlived a full collection decides whether it is called garbage: see
        # `unreachable_storages`.
        if info["generation"] == _OLDEST and ledger.tick:
            total.full, total.full_at = total.full + 1, ledger.tick
        total.seconds += time.perf_counter() - self._started
        self._heap_freed(self._heap - self._heap_in_use())
        for birth in ledger.collected:
            # An adopted gradient was there before the window: nobody knows how long it has lived.
            if birth.op != "adopted":
                total.freed += birth.nbytes
                total.storages += 1
                self._ticks.add(birth.tick)
                total.longest = max(total.longest, ledger.tick - birth.tick)
                # A sample is enough for the line: those of one program come from a few lines.
                if len(self._sample) < 64:
                    self._sample.append(birth)
        ledger.collected.clear()

    def _heap_in_use(self) -> int:
        """Bytes that the program has from malloc; 0 where that is not to be asked."""
        if self._ledger.tick < _FIRST or host.heap_in_use is None or self._slow >= _TIMES_SLOW:
            return 0
        # By the thread's own work: a busy machine must not look like a slow heap.
        start = time.thread_time()
        found = host.heap_in_use()
        self._slow += time.thread_time() - start > _SLOW
        return found

    def _heap_freed(self, size: int) -> None:
        """Bytes that the heap is smaller after a collection that began at a step."""
        if not self._heap:
            return
        # The first full reading is the baseline; bytes are told from here to `until` only.
        if self._since is None:
            self._since = self.total.since = self._ledger.tick
            return  # it freed what is older as well
        if size > 0:
            self.total.heap_freed += size
            self.total.until = self._ledger.tick

    def totals(self, tick: int) -> Iterator[CollectorUse]:
        """See `Watcher`."""
        sites = sum_by_site(self._sample, 4)
        total = self.total
        total.sampled, total.enabled, total.steps = self.host.sampled_steps, gc.isenabled(), len(self._ticks)
        total.place, total.sites = sites[0].site.place if sites else None, sites
        # The later collections were not measured: the sum of the earlier ones would pass for all of them.
        if self._slow >= _TIMES_SLOW:
            total.heap_freed = 0
        yield total
