"""Follows the optimizers that have a schedule: does it lower the rate so far that no weight changes any more?"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import Optimizer, Place
from torchvet.recording.records.training import FallenRate

_FALLEN = 1e-4
"""The part of its highest value from which on a rate has fallen. It is then followed; most never do."""
_SMALL = 1 << 16
_WITNESSES = 4
"""Parameters of an optimizer that are compared whole: the largest of those up to `_SMALL`, as long as they have a
gradient."""


@dataclass
class FollowedRate:
    """A schedule and its optimizer, both held weakly."""

    optimizer: weakref.ref[Optimizer]
    schedule: weakref.ref[Any]
    record: FallenRate
    since: int = 0
    """The look from which on nothing has moved."""
    rate: float = 0.0
    times: int = 0
    first: int = 0
    """How often the schedule had been stepped by then."""
    kept: list[tuple[weakref.ref[torch.Tensor], int, torch.Tensor]] = field(default_factory=list)
    """At the last look, if the rate had fallen: a parameter, its version, a copy of its values."""

    def stepped(self, place: Place | None) -> None:
        """The schedule takes its first step after the one of its constructor."""
        self.record.place = self.record.place or place

    def look(self, step: int) -> None:
        """A step has ended, and its gradients are there."""
        optimizer, schedule = self.optimizer(), self.schedule()
        if optimizer is None or schedule is None:
            return
        if self._has_fallen(optimizer):
            self._compare(optimizer, step, int(getattr(schedule, "_step_count", 0)))
        else:
            self.kept = []

    def _has_fallen(self, optimizer: Optimizer) -> bool:
        groups, record = optimizer.param_groups, self.record
        known = (float(group.get("initial_lr", 0.0)) for group in groups)
        self.rate = max((float(group["lr"]) for group in groups), default=0.0)
        # `initial_lr` is what the schedule itself goes by: a warm-up begins near zero.
        record.highest = max(record.highest, self.rate, *known)
        return record.highest > 0 and self.rate <= _FALLEN * record.highest

    def _compare(self, optimizer: Optimizer, step: int, steps: int) -> None:
        """What has moved since the last look? `steps` are those of the schedule."""
        written = [one for one in self.kept if (p := one[0]()) is not None and p._version != one[1]]
        # Nothing can be said of a step that was not taken.
        if self.kept and not written:
            return  # the optimizer has not stepped since
        if not written or any(_moved(one) for one in written):
            self.since, self.first, self.times = step, steps, 0
        else:
            self.times += 1
            self._still(step, steps)
        self.kept = [(weakref.ref(p), p._version, p.detach().clone()) for p in _with_gradients(optimizer)]

    def _still(self, step: int, steps: int) -> None:
        """Nothing has moved since a look before."""
        record = self.record
        # The longest such stretch of the run is kept.
        if step - self.since >= record.until - record.since:
            record.since, record.until, record.looks = self.since, step, self.times + 1
            record.rate, record.schedule_steps, record.parameters = self.rate, steps - self.first, len(self.kept)


def _moved(one: tuple[weakref.ref[torch.Tensor], int, torch.Tensor]) -> bool:
    parameter = one[0]()
    return parameter is not None and not torch.equal(parameter.detach(), one[2])


def _with_gradients(optimizer: Optimizer) -> list[torch.Tensor]:
    """Its largest parameters of no great size, if they have a gradient that is not zero."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    plain = [p for p in parameters if p.layout is torch.strided and 0 < p.numel() <= _SMALL and _has_gradient(p)]
    return sorted(plain, key=torch.Tensor.numel)[-_WITNESSES:]


def _has_gradient(parameter: torch.Tensor) -> bool:
    gradient = gradient_of(parameter)
    # With a zero gradient no rate would move it.
    return gradient is not None and gradient.layout is torch.strided and bool(gradient.detach().any())
