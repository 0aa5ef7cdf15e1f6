"""Counts how often gradients are averaged over all ranks: this proves a fix that holds them back."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from torchvet.probes.base.kit import EVERY_STEP, Host, Optimizer, Place, SiteWatcher, frames, tap
from torchvet.recording.records.verify import Reduced

_WHAT = "how often gradients are averaged over all ranks"


class Reductions(SiteWatcher[Place, Reduced]):
    """How often gradients are averaged over all ranks."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.ignored = EVERY_STEP

    @classmethod
    def wanted(cls, options: Any) -> bool:
        """Only where runs are compared."""
        return bool(options.losses)

    def install(self) -> None:
        """Hear of forward passes: they settle whether the backward averages."""
        self.replace(DistributedDataParallel, "forward", tap(self.host, _WHAT, before=self._passes))

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """A step was taken."""
        for record in self.sites.values():
            record.steps += 1

    def _passes(self, model: Any, *_: Any, **__: Any) -> None:
        place = frames.user_place() if torch.is_grad_enabled() and model.training else None
        if place is not None:
            # Until a wrapped model runs, steps mean nothing to it.
            self.heed()
            record = self.sites.setdefault(place, Reduced(place=place))
            record.passes += 1
            record.reduced += bool(model.require_backward_grad_sync)
