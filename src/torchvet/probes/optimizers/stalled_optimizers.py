"""Optimizers that stepped in the very first steps and never again, while their parameters got gradients on and on.

A library that makes an optimizer for each parameter (Pyro) steps those that it finds in the step at hand: what it does
not find any more stays as it is, with its gradients, and no parameter is without an owner.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import Optimizer
from torchvet.recording.records.optimizers import OptimizerUse, StalledOptimizers

_SOON = 3
"""Steps of its own up to which an optimizer has hardly begun."""
_LONG, _TIMES = 100, 10
"""It has stopped after so many steps of the program, and so many times those in which it stepped: a generator that is
trained in every hundredth step has not."""
_LOOKS = 5
"""Looks at which its parameters must have had another gradient."""
_WITNESSES = 3


@dataclass
class _Idle:
    """What an optimizer that does not step was like at the last look."""

    optimizer: weakref.ref[Optimizer]
    use: OptimizerUse
    steps: int
    last_step: int
    """The tick at which it was seen to have stepped."""
    tick: int = 0
    fed: int = 0
    """Looks since then at which there was a new gradient."""
    marks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By parameter: where its gradient lies, and how often that was written to."""
    versions: dict[int, int] = field(default_factory=dict)

    def look(self, parameters: list[torch.Tensor], tick: int) -> None:
        """No step since the last look: has anybody else changed the parameters, and are there new gradients?"""
        versions = {id(p): p._version for p in parameters}
        marks = {id(p): _mark(g) for p in parameters if (g := gradient_of(p)) is not None}
        if self.versions and versions != self.versions:
            self.last_step, self.fed = tick, 0  # somebody else trains them
        elif marks and any(self.marks.get(key) != mark for key, mark in marks.items()):
            self.fed += 1
        self.versions, self.marks, self.tick = versions, marks, tick

    @property
    def stopped(self) -> bool:
        """Whether it will hardly step again."""
        return self.fed >= _LOOKS and self.tick - self.last_step >= max(_LONG, _TIMES * self.last_step)


def _mark(gradient: torch.Tensor) -> tuple[int, int]:
    return id(gradient), gradient._version


class Stalled:
    """Follows optimizers from step to step of the program. They are held weakly."""

    def __init__(self) -> None:
        self._idle: dict[int, _Idle] = {}
        self._told = False

    def look(self, optimizer: Optimizer, use: OptimizerUse, tick: int) -> None:
        """A step of the program has ended, whether or not this optimizer took part."""
        known = self._idle.get(use.id)
        if not 0 < use.steps <= _SOON:
            self._idle.pop(use.id, None)
            return
        if known is None or known.steps != use.steps:
            self._idle[use.id] = _Idle(weakref.ref(optimizer), use, use.steps, tick)
            return
        known.look(_parameters(optimizer)[:_WITNESSES], tick)

    def records(self, names: dict[int, str]) -> Iterator[StalledOptimizers]:
        """One record of all that have stopped; an empty one takes an earlier back."""
        stopped = [
            (one, owner) for one in self._idle.values() if one.stopped and (owner := one.optimizer()) is not None
        ]
        if stopped or self._told:
            self._told = bool(stopped)
            yield _record([one for one, _ in stopped], [p for _, owner in stopped for p in _parameters(owner)], names)


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _record(stopped: list[_Idle], parameters: list[torch.Tensor], names: dict[int, str]) -> StalledOptimizers:
    with_gradient = [p for p in parameters if gradient_of(p) is not None]
    first = stopped[0].use if stopped else None
    return StalledOptimizers(
        optimizers=len(stopped),
        name=first.name if first is not None else "",
        place=first.step_place or first.place if first is not None else None,
        names=[names.get(id(p), "a parameter") for p in with_gradient][:8],
        parameters=len(with_gradient),
        after=max((one.last_step for one in stopped), default=0),
        until=max((one.tick for one in stopped), default=0),
    )
