"""Watchers whose findings are running totals: one record for each place, or for whatever else tells them apart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from torchvet.probes.base.watcher import Host, Watcher
from torchvet.recording.records.base import Record

Key = TypeVar("Key")
Total = TypeVar("Total", bound=Record)


class SiteWatcher(Watcher, Generic[Key, Total]):
    """Adds to the records in `sites`, which are written whenever totals are asked for."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.sites: dict[Key, Total] = {}

    def totals(self, tick: int) -> Iterable[Record]:
        """Every site's record."""
        return list(self.sites.values())
