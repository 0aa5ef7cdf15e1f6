"""Counts how often gradients are averaged over all ranks: by it a mend that holds them back is proven."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer

from torchvet.probes.base import frames
from torchvet.probes.base.watcher import EVERY_STEP, Host, Watcher
from torchvet.recording.records.base import Place, Record
from torchvet.recording.records.verify import Reduced


class Reductions(Watcher):
    """How often gradients are averaged over all ranks."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._sites: dict[Place, Reduced] = {}
        self.ignored = EVERY_STEP

    @classmethod
    def wanted(cls, options: Any) -> bool:
        """Only where runs are compared."""
        return bool(options.losses)

    def install(self) -> None:
        """Hear of forward passes: they settle whether the backward averages."""
        self.replace(DistributedDataParallel, "forward", self._tap_forward)

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """A step was taken."""
        for record in self._sites.values():
            record.steps += 1

    def totals(self, tick: int) -> Iterable[Record]:
        """Each line that runs such a model."""
        return list(self._sites.values())

    def _tap_forward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        watcher = self

        @functools.wraps(original)
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            if watcher.host.active and torch.is_grad_enabled() and self.training:
                with watcher.host.looking("how often gradients are averaged over all ranks"):
                    watcher._passed(bool(self.require_backward_grad_sync))
            return original(self, *args, **kwargs)

        return forward

    def _passed(self, reduces: bool) -> None:
        place = frames.user_place(2)
        if place is not None:
            self.heed()
            record = self._sites.setdefault(place, Reduced(place=place))
            record.passes += 1
            record.reduced += reduces
