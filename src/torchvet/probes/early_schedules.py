"""Looks for schedulers whose first step comes before their optimizer's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import lr_scheduler

from torchvet.probes import frames
from torchvet.probes._importlib_bootstrap_taps import around
from torchvet.probes.watcher import Host, Watcher
from torchvet.recording.records import Place, Record
from torchvet.recording.training_records import EarlySchedule


class EarlySchedules(Watcher):
    """Schedulers that step before their optimizers."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._sites: dict[Place, EarlySchedule] = {}

    def install(self) -> None:
        """Be told of the steps of torch's schedulers."""
        for kind in {k for k in vars(lr_scheduler).values() if isinstance(k, type)}:
            if issubclass(kind, lr_scheduler.LRScheduler) and "step" in vars(kind):
                self.replace(kind, "step", self._stepping)

    def _stepping(self, original: Any) -> Any:
        return around(original, self._look, torch.compiler.is_compiling)

    def _look(self, args: Any, kwargs: Any) -> None:
        # torch counts a first step of its own in the constructor, and notes on the optimizer that it has stepped.
        scheduler = args[0]
        first = getattr(scheduler, "_step_count", 0) == 1
        if first and self.host.active and not getattr(scheduler.optimizer, "_opt_called", False):
            with self.host.looking("the order of schedulers"):
                place = frames.user_place(2)
                if place is not None:
                    self._sites.setdefault(place, EarlySchedule(place=place, name=type(scheduler).__name__))

    def totals(self, tick: int) -> Iterable[Record]:
        """Each line's."""
        return list(self._sites.values())
