"""Watches DistributedSamplers: whether those that shuffle are told a new epoch before they are gone through again."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.data.distributed import DistributedSampler

from torchvet.probes.base.kit import Host, Place, Record, Watcher, frames, tap
from torchvet.recording.records.ranks import SampledEpochs

_WHAT = "epochs of DistributedSamplers"


class Samplers(Watcher):
    """Epochs of DistributedSamplers."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._made: weakref.WeakKeyDictionary[Any, Place | None] = weakref.WeakKeyDictionary()
        self._records: weakref.WeakKeyDictionary[Any, tuple[SampledEpochs, set[Any]]] = weakref.WeakKeyDictionary()
        self._all: list[SampledEpochs] = []
        self._under_way: tuple[SampledEpochs, set[Any], Any, int] | None = None
        """What was begun last: by which epoch, and after how many training steps."""

    def install(self) -> None:
        """Hear of samplers as they are made and gone through."""
        self.replace(DistributedSampler, "__init__", tap(self.host, _WHAT, after=self._is_made))
        self.replace(DistributedSampler, "__iter__", tap(self.host, _WHAT, before=self._begins))

    def _is_made(self, _: None, sampler: Any, *__: Any, **___: Any) -> None:
        self._made[sampler] = frames.user_place()

    def _begins(self, sampler: Any) -> None:
        self._settle()
        place = frames.user_place()
        # An evaluation's order makes no difference.
        if place is None or not torch.is_grad_enabled() or self.host.clock.evaluating:
            return
        if sampler not in self._records:
            record = SampledEpochs(
                id=len(self._all),
                place=place,
                made=self._made.get(sampler),
                shuffle=bool(sampler.shuffle),
                replicas=int(sampler.num_replicas),
            )
            self._all.append(record)
            self._records[sampler] = record, set()
        record, epochs = self._records[sampler]
        # Not counted yet: a sampler may be gone through for a count or a look.
        self._under_way = record, epochs, sampler.epoch, self.host.clock.trained

    def _settle(self) -> None:
        """Count what was begun last, if optimizers have stepped since."""
        if self._under_way is not None and self.host.clock.trained > self._under_way[3]:
            record, epochs, epoch, _ = self._under_way
            # As many different epochs as passes that trained: `set_epoch` was called.
            epochs.add(epoch)
            record.trained, record.epochs = record.trained + 1, len(epochs)
            self._under_way = None

    def totals(self, tick: int) -> Iterable[Record]:
        """See `Watcher`."""
        self._settle()
        return list(self._all)
