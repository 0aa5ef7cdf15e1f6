"""Times the first batch of each pass over a loader whose workers are started anew for it."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from types import FrameType
from typing import Any

from torch.utils.data import DataLoader

from torchvet.probes.base.kit import Host, Place, Record, tap, user_lines
from torchvet.probes.time.loaders.made import MadeLoaders
from torchvet.probes.time.real_time import TimeWatcher
from torchvet.recording.records.timing import WorkerStarts


class WorkerStartsProbe(TimeWatcher):
    """Passes over loaders with workers that are not kept."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._loaders = MadeLoaders()
        self._loops: dict[tuple[Place, Place | None], WorkerStarts] = {}
        """By the loop and the line that made the loader: a line may go over two of them."""
        self._passes: dict[int, tuple[weakref.ref[Any], WorkerStarts]] = {}
        """The passes under way, by the identity of their iterators."""
        self._asks: tuple[WorkerStarts, bool] | None = None
        """The loop that asks for a batch now, and whether it is the first of its pass."""
        self._before = 0.0

    def install(self) -> None:
        """Note where loaders are made."""
        self.replace(DataLoader, "__init__", tap(self.host, "where loaders are made", after=self._loader_made))

    def _loader_made(self, _: None, loader: Any, *__: Any, **___: Any) -> None:
        self._loaders.note(loader)

    def batch_asked(self, iterator: Any, caller: FrameType) -> None:
        """See `Watcher`."""
        self._asks = None
        # Private, all three.
        if not getattr(iterator, "_num_workers", 0) or getattr(iterator, "_persistent_workers", True):
            return
        first = getattr(iterator, "_num_yielded", 1) == 0
        if first:
            self._begins(iterator, caller)
        known = self._passes.get(id(iterator))
        if known is not None and known[0]() is iterator:
            self._asks = known[1], first
            self._before = self.host.phase_seconds("data")

    def _begins(self, iterator: Any, caller: FrameType) -> None:
        place = next(iter(user_lines(caller, 1)), None)
        if place is None:
            return
        made = next(self._loaders.of(iterator), None)
        record = self._loops.setdefault(
            (place, made), WorkerStarts(place=place, made=made, workers=iterator._num_workers)
        )
        record.starts += 1
        self._passes = {key: known for key, known in self._passes.items() if known[0]() is not None}
        self._passes[id(iterator)] = weakref.ref(iterator), record

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """See `Watcher`."""
        if self._asks is not None:
            record, first = self._asks
            seconds = self.host.phase_seconds("data") - self._before
            record.seconds += seconds
            record.first += seconds if first else 0.0
            self._asks = None

    def totals(self, tick: int) -> Iterable[Record]:
        """Each loop's."""
        return list(self._loops.values())
