"""Looks for schedulers whose first step comes before their optimizer's, and for rates that they take to nothing."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from torch.optim import lr_scheduler

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import Host, Optimizer, Place, Record, SiteWatcher, StepKind, around, frames
from torchvet.probes.base.schedule import Checkups
from torchvet.probes.training.fallen_rates import FollowedRate
from torchvet.recording.records.training import EarlySchedule, FallenRate


class EarlySchedules(SiteWatcher[Place, EarlySchedule]):
    """Schedulers that step before their optimizers."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._waiting: dict[int, EarlySchedule] = {}
        """By optimizer: the schedule that took a step and waits for its first."""
        self._begun: dict[int, EarlySchedule] = {}
        """By optimizer: the schedule that was ahead of it, until the next step tells whether it is so each time."""
        self._rates: dict[int, FollowedRate] = {}
        """By optimizer: the schedule that was made of it last."""
        self._checkups = Checkups()
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
        # Private (`private.ATTRIBUTES`): 1 after the constructor. Without it schedules of all counts are
        # followed.
        count = getattr(scheduler, "_step_count", 0)
        if count < 2 and self.host.active and not self._is_placed(scheduler):
            with self.host.looking("the order of schedulers"):
                place = frames.user_place(2)
                self._follow(scheduler, count, place)
                # Private: set by torch's wrapper around `optimizer.step`, and what torch's own
                # warning goes by.
                early = count == 1 and not getattr(scheduler.optimizer, "_opt_called", False)
                if early and place is not None and place not in self.sites:
                    self._note(scheduler, place, plain=len(args) == 1 and not kwargs)

    def _is_placed(self, scheduler: Any) -> bool:
        """Whether all is known of one that counts no steps."""
        known = self._rates.get(id(scheduler.optimizer))
        counts = hasattr(scheduler, "_step_count")
        return not counts and known is not None and known.schedule() is scheduler and known.record.place is not None

    def _follow(self, scheduler: Any, count: int, place: Place | None) -> None:
        key = id(scheduler.optimizer)
        known = self._rates.get(key)
        if known is None or known.schedule() is not scheduler:
            record = FallenRate(place=None, made=place, schedule=type(scheduler).__name__)
            record.optimizer = type(scheduler.optimizer).__name__
            self._rates[key] = FollowedRate(weakref.ref(scheduler.optimizer), weakref.ref(scheduler), record)
        elif count or not hasattr(scheduler, "_step_count"):
            known.stepped(place)

    def settle(self, tick: int, kind: StepKind) -> None:
        """What have schedules made of the rates?"""
        if self._rates and self._checkups.due(tick):
            # What was found of one that has died is kept.
            self._rates = {key: one for key, one in self._rates.items() if one.optimizer() or one.record.looks}
            for one in self._rates.values():
                one.look(self.host.step)

    def totals(self, tick: int) -> Iterable[Record]:
        """See `Watcher`."""
        return [*self.sites.values(), *(one.record for one in self._rates.values() if one.record.looks)]

    def finish(self, how: str, error: BaseException | None) -> None:
        """Copies of weights are not kept any longer."""
        for one in self._rates.values():
            one.kept = []

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
