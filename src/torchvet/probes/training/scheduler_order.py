"""Looks for schedulers whose first step comes before their optimizer's."""

from __future__ import annotations

from typing import Any

from torch.optim import lr_scheduler

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import Host, Optimizer, Place, SiteWatcher, around, frames
from torchvet.recording.records.training import EarlySchedule


class EarlySchedules(SiteWatcher[Place, EarlySchedule]):
    """Schedulers that step before their optimizers."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._waiting: dict[int, EarlySchedule] = {}
        """By optimizer: the schedule that took a step and waits for its first."""
        self._begun: dict[int, EarlySchedule] = {}
        """By optimizer: the schedule that was ahead of it, until the next step tells whether it is so each time."""
        self.ignored = frozenset({"optimizer_starts"})

    def install(self) -> None:
        """Hear the steps of torch's schedulers."""
        for kind in {k for k in vars(lr_scheduler).values() if isinstance(k, type)}:
            if issubclass(kind, lr_scheduler.LRScheduler) and "step" in vars(kind):
                self.replace(kind, "step", lambda original: around(original, self._look))

    def _look(self, args: Any, kwargs: Any) -> None:
        # torch counts a first step of its own in the constructor, and notes on the optimizer that it has stepped.
        scheduler = args[0]
        if self._waiting or self._begun:
            # A second step before the optimizer's: training that goes on from a checkpoint winds its schedule on. One
            # step of another line was made on purpose, as over a warm-up's first rate of nothing.
            self._waiting.pop(id(scheduler.optimizer), None)
            begun = self._begun.pop(id(scheduler.optimizer), None)
            if begun is not None and frames.user_place(2) == begun.place:
                begun.alone = True
        first = getattr(scheduler, "_step_count", 0) == 1
        if first and self.host.active and not getattr(scheduler.optimizer, "_opt_called", False):
            with self.host.looking("the order of schedulers"):
                place = frames.user_place(2)
                if place is not None and place not in self.sites:
                    self._note(scheduler, place, plain=len(args) == 1 and not kwargs)

    def _note(self, scheduler: Any, place: Place, *, plain: bool) -> None:
        optimizer = scheduler.optimizer
        one = EarlySchedule(place=place, name=type(scheduler).__name__, optimizer=type(optimizer).__name__)
        self.sites[place] = one
        # With gradients there it may be a scaler that has skipped the optimizer's step.
        fresh = all(gradient_of(p) is None for group in optimizer.param_groups for p in group["params"])
        if plain and fresh:
            self._waiting[id(optimizer)] = one
            self.heed()

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """The first step of one that a schedule was ahead of."""
        one = self._waiting.pop(id(optimizer), None)
        if one is not None:
            self._begun[id(optimizer)] = one
