"""Looks for activations that give nothing but the ends of their range, so that no gradient comes through.

In sampled steps each ReLU and clamped activation is heard. Where all that one gave in a step is at an end, gradients
are read when the optimizer steps: those of the layers before it are exactly 0.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import (
    EVERY_STEP,
    Host,
    Optimizer,
    Place,
    Record,
    SiteWatcher,
    StepKind,
    bare_name,
    overloads,
    tensors_within,
)
from torchvet.probes.internals.simulated import plain_values
from torchvet.probes.numerics import half
from torchvet.recording.records.layers import DeadActivation

_RELUS = overloads("relu relu_")
_CLAMPED = overloads("hardtanh hardtanh_")
_FIRST = 256
"""Numbers that are looked at before all others: of an activation that lives some differ from 0."""
_MOST = 1 << 23
"""Numbers of a result that is looked at."""
_NAMES = 3
_Key = tuple[Place, str, int]
"""A line, a module, and which of the step's activations there it is: several may stand on one line."""


class DeadActivations(SiteWatcher[_Key, DeadActivation]):
    """Activations that give the ends of their range only."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._now: dict[_Key, tuple[str, int]] = {}
        """Of this step: activations that gave nothing but ends, and how many numbers."""
        self._alive: set[_Key] = set()
        self._calls: Counter[tuple[Place, str]] = Counter()
        self._lost = False
        """Whether a loss of this step was not 0."""
        self._allowance = half.Allowance(0.1, 0.01)

    def install(self) -> None:
        """In sampled steps, hear activations that have a flat part."""
        self.host.hear((*_RELUS, *_CLAMPED), self._activated)

    def _activated(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if not args[0].requires_grad or half.in_backward() or not 0 < out.numel() <= _MOST:
            return
        place = self.host.line() if self._allowance.left() else None
        if place is None:
            return
        began = time.thread_time()
        module = self.host.ledger.module() or ""
        key = place, module, self._calls[place, module]
        self._calls[place, module] += 1
        plain = plain_values(out)
        if plain is not None and _is_dead(plain, args[1:3] if func in _CLAMPED else (0.0,)):
            self._now[key] = bare_name(func).strip("_"), out.numel()
        elif plain is not None:
            self._alive.add(key)
        self._allowance.spend(began)

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """Where a loss is 0, so are all gradients."""
        if self._now and not is_grad:
            losses = [plain_values(one) for one in tensors_within([tensors])]
            self._lost |= any(one is not None and bool(one.any()) for one in losses)

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """Which parameters get a gradient of 0?"""
        if not self._lost or not self._now:
            return
        began = time.thread_time()
        still, moved = [], 0
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            gradient = gradient_of(parameter)
            plain = plain_values(gradient) if gradient is not None and gradient.dim() > 1 else None
            if plain is not None and plain.any():
                moved += 1
            elif plain is not None:
                still.append(parameter)
        if still:
            self._add(still, moved)
        self._allowance.spend(began)

    def _add(self, still: list[torch.Tensor], moved: int) -> None:
        names = self.host.known.parameter_names()
        for key, (name, numbers) in self._now.items():
            record = self.sites.get(key)
            if record is None:
                record = DeadActivation(place=key[0], module=key[1], number=key[2], operator=name, since=self.host.step)
                self.sites[key] = record
            record.steps += 1
            record.numbers += numbers
            record.weights, record.moved = len(still), moved
            record.names = [names.get(id(p), "") for p in still[:_NAMES]]

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended. What came back to life was not dead."""
        for key in self._alive:
            self.sites.pop(key, None)
        self._now.clear()
        self._calls.clear()
        self._alive.clear()
        self._lost = False

    def restarted(self) -> None:
        """Steps are counted anew."""
        self.sites.clear()

    def totals(self, tick: int) -> Iterable[Record]:
        """Those that are dead."""
        return [*self.sites.values()]


def _is_dead(given: torch.Tensor, ends: tuple[float, ...]) -> bool:
    """Whether all numbers are one of the ends."""
    some = given.flatten()[:_FIRST] if given.is_contiguous() else given
    for part in (some, given):
        beside = part if ends == (0.0,) else torch.stack([part != end for end in ends]).all(0)
        if bool(beside.any()):
            return False
    return True
