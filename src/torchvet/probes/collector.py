"""Watches Python's cyclic collector: how often, how long, and which sampled storages only it could free."""

from __future__ import annotations

import gc
import time
from typing import Any

from torchvet.probes.ledger import Ledger, sum_by_site
from torchvet.recording.training_records import CollectorUse


class CollectorProbe:
    """Counts through `gc.callbacks`; storages that die within a collection were held by a cycle."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._started = 0.0
        self.collections = 0
        self.seconds = 0.0
        self.freed = 0
        self.storages = 0
        self.longest = 0
        self._ticks: set[int] = set()
        self._sample: list[Any] = []

    def install(self) -> None:
        """Listen to the collector."""
        gc.callbacks.append(self._call)

    def remove(self) -> None:
        """Stop listening."""
        if self._call in gc.callbacks:
            gc.callbacks.remove(self._call)

    def _call(self, phase: str, _: dict[str, int]) -> None:
        ledger = self._ledger
        if phase == "start":
            self._started = time.perf_counter()
            ledger.collecting = True
            return
        ledger.collecting = False
        self.collections += 1
        self.seconds += time.perf_counter() - self._started
        for birth in ledger.collected:
            if birth.op != "adopted":
                self.freed += birth.nbytes
                self.storages += 1
                self._ticks.add(birth.tick)
                self.longest = max(self.longest, ledger.tick - birth.tick)
                if len(self._sample) < 64:
                    self._sample.append(birth)
        ledger.collected.clear()

    def record(self, sampled: int) -> CollectorUse:
        """The running totals; `sampled` is the number of steps whose storages were noted."""
        sites = sum_by_site(self._sample, 4)
        return CollectorUse(
            collections=self.collections, seconds=self.seconds, freed=self.freed, storages=self.storages,
            sampled=sampled, enabled=gc.isenabled(), longest=self.longest, steps=len(self._ticks),
            place=sites[0].site.place if sites else None, sites=sites,
        )  # fmt: skip
