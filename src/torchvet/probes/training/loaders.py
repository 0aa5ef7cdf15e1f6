"""Watches loaders: which loops run over them, and how many of their batches stay alive."""

from __future__ import annotations

import weakref
from types import FrameType
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Place, Watcher, graphs, user_lines
from torchvet.probes.objects import naming
from torchvet.probes.objects.containers import tensors_in
from torchvet.recording.records.passes import UsedUpIterator
from torchvet.recording.records.training import LoaderMemory, LoopBound

_MOST_BATCHES = 512
_MOST_PLACES = 64


class _Loader:
    def __init__(self, total: LoaderMemory) -> None:
        self.total = total
        self.batches: list[list[weakref.ref[Any]]] = []
        """The first storages of each batch."""


class LoaderProbe(Watcher):
    """Loops over loaders. Batches are held weakly."""

    always = True

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._loaders: dict[int, _Loader] = {}
        self._by_place: dict[Place | None, _Loader] = {}
        self._asked: weakref.ref[Any] | None = None
        """The iterator that was asked last, until it gives a batch."""
        self._ended: weakref.WeakSet[Any] = weakref.WeakSet()
        self._asked_after_end: dict[Place, UsedUpIterator] = {}

    def batch_asked(self, iterator: Any, caller: FrameType) -> None:
        """See `Watcher`."""
        self._note_ended(iterator, caller)
        known = self._loaders.get(id(iterator))
        if known is not None and known.total.made:
            return
        place = next(iter(user_lines(caller, 1)), None)
        try:
            length: int | None = len(iterator)
        # Batches are counted all the same.
        except Exception:  # a sampler's own `__len__` may raise anything
            length = None
        # Private, as `_num_workers`: what workers have read ahead is alive by right.
        ahead = getattr(iterator, "_prefetch_factor", None) or 0
        workers = getattr(iterator, "_num_workers", 0) or 0
        self._loaders = {k: v for k, v in self._loaders.items() if k != id(iterator)}
        total = LoaderMemory(tick=0, place=place, made=0, alive=0, bytes=0, batch_bytes=0, capacity=4 + ahead * workers)
        total.length = length
        self._loaders[id(iterator)] = self._by_place[place] = _Loader(total)
        # Iterators of epochs gone by: identities are given out again.
        while len(self._loaders) > 16:
            self._loaders.pop(next(iter(self._loaders)))

    def _note_ended(self, iterator: Any, caller: FrameType) -> None:
        """Note an iterator that has given no batch, and whether this one is asked although it has ended."""
        last = self._asked() if self._asked is not None else None
        self._asked = weakref.ref(iterator)
        if last is not None:
            self._ended.add(last)
        # Of workers that persist the same iterator begins anew. Private (`private.ATTRIBUTES`).
        if not self._ended or iterator not in self._ended or getattr(iterator, "_num_yielded", 0) == 0:
            return
        place = next(iter(user_lines(caller, 1)), None)
        if place is not None and (place in self._asked_after_end or len(self._asked_after_end) < _MOST_PLACES):
            new = UsedUpIterator(place=place, what=type(iterator).__name__, clips=False)
            seen = self._asked_after_end.setdefault(place, new)
            seen.calls = seen.used_up = seen.calls + 1

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """See `Watcher`. While a window is open its storages are noted as inputs."""
        self._asked = None
        if self._ended:
            self._ended.discard(iterator)
        loader, ledger, sampling = self._loaders.get(id(iterator)), self.host.ledger, self.host.sampling
        if loader is not None:
            loader.total.made += 1
        full = loader is None or len(loader.batches) >= _MOST_BATCHES
        if full and not sampling:
            return
        tensors = tensors_of(batch)
        if sampling:
            # The loader has returned, so that the phase is the program's again.
            phase, ledger.phase = ledger.phase, "data"
            for tensor in tensors:
                ledger.born(tensor, "DataLoader")
            ledger.phase = phase
        if loader is None or full:
            return
        # A few of each batch are enough to know whether it lives.
        storages = [s for t in tensors for s in graphs.storages_of(t)]
        loader.total.batch_bytes = sum({s._cdata: s.nbytes() for s in storages}.values())
        # Weakly: a batch that the program keeps is what is being counted.
        loader.batches.append([weakref.ref(s) for s in storages[:4]])

    def totals(self, tick: int) -> list[LoaderMemory | LoopBound | UsedUpIterator]:
        """What each loop over a loader holds now."""
        found: list[LoaderMemory | LoopBound | UsedUpIterator] = [*self._asked_after_end.values()]
        for place, loader in self._by_place.items():
            total = loader.total
            total.tick, total.alive = tick, sum(any(ref() is not None for ref in batch) for batch in loader.batches)
            total.bytes = total.alive * total.batch_bytes
            if place is not None and total.length is not None:
                found.append(LoopBound(place=place, length=total.length))
            found.append(total)
        return found


def tensors_of(batch: Any) -> list[torch.Tensor]:
    """A batch's tensors; of an object with attributes (a graph batch) those in its attributes."""
    space = naming.namespace(batch) if not isinstance(batch, (torch.Tensor, dict, list, tuple)) else None
    return tensors_in(batch if space is None else space, 4)
