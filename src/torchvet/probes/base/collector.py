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
        self.collections = 0
        self.seconds = 0.0
        self.freed = 0
        self.storages = 0
        self.longest = 0
        self.heap_freed = 0
        self._heap = 0
        self._slow = 0
        self._since: int | None = None
        self._until = 0
        self._ticks: set[int] = set()
        self._sample: list[Any] = []

    def install(self) -> None:
        """Listen to the collector."""
        gc.callbacks.append(self._call)

    def finish(self, how: str, error: BaseException | None) -> None:
        """What torchvet collects from now on is not the program's."""
        self.remove()

    def remove(self) -> None:
        """Stop listening."""
        if self._call in gc.callbacks:
            gc.callbacks.remove(self._call)

    def _call(self, phase: str, _: dict[str, int]) -> None:
        ledger = self._ledger
        if phase == "start":
            self._started = time.perf_counter()
            ledger.collecting = True
            self._heap = self._heap_in_use()
            return
        ledger.collecting = False
        self.collections += 1
        self.seconds += time.perf_counter() - self._started
        self._heap_freed(self._heap - self._heap_in_use())
        for birth in ledger.collected:
            if birth.op != "adopted":
                self.freed += birth.nbytes
                self.storages += 1
                self._ticks.add(birth.tick)
                self.longest = max(self.longest, ledger.tick - birth.tick)
                if len(self._sample) < 64:
                    self._sample.append(birth)
        ledger.collected.clear()

    def _heap_in_use(self) -> int:
        """Bytes that the program has from malloc; 0 where that is not to be asked."""
        if self._ledger.tick < _FIRST or host.heap_in_use is None or self._slow >= _TIMES_SLOW:
            return 0
        start = time.thread_time()
        found = host.heap_in_use()
        self._slow += time.thread_time() - start > _SLOW
        return found

    def _heap_freed(self, size: int) -> None:
        """Bytes that the heap is smaller after a collection that began at a step."""
        if not self._heap:
            return
        if self._since is None:
            self._since = self._ledger.tick
            return  # it freed what is older as well
        if size > 0:
            self.heap_freed += size
            self._until = self._ledger.tick

    def totals(self, tick: int) -> Iterator[CollectorUse]:
        """See `Watcher`."""
        sites = sum_by_site(self._sample, 4)
        yield CollectorUse(
            collections=self.collections, seconds=self.seconds, freed=self.freed, storages=self.storages,
            sampled=self.host.sampled_steps, enabled=gc.isenabled(), longest=self.longest, steps=len(self._ticks),
            place=sites[0].site.place if sites else None, sites=sites,
            heap_freed=self.heap_freed if self._slow < _TIMES_SLOW else 0, since=self._since or 0, until=self._until,
        )  # fmt: skip
