"""Looks for activations that give nothing but the ends of their range, so that no gradient comes through.

In sampled steps each ReLU and clamped activation is heard. Where all that one gave in a step is at an end, gradients
are read when the optimizer steps: those of the layers before it are exactly 0.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

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
    graphs,
    overloads,
    tensors_within,
)
from torchvet.probes.internals.simulated import plain_values
from torchvet.probes.numerics import half
from torchvet.recording.records.layers import DeadActivation

_RELUS = overloads("relu relu_")
_CLAMPED = overloads("hardtanh hardtanh_")
_ENDS = {"hardsigmoid": (0.0, 1.0)}
"""Where others than a ReLU are flat."""
_OTHERS = overloads("hardsigmoid hardsigmoid_ hardswish hardswish_")
_FIRST = 256
"""Numbers that are looked at before all others: of an activation that lives some differ from 0."""
_MOST = 1 << 23
"""Numbers of a result that is looked at."""
_NAMES = 3
_NODES = 4096
"""Nodes of a graph that are walked through for the weights before an activation."""
_Key = tuple[Place, str, int]
"""A line, a module, and which of the step's activations there it is: several may stand on one line."""


class _Dead(NamedTuple):
    """An activation that gave nothing but ends: how many numbers, and by id which weights lie before it, and next to
    it."""

    name: str
    numbers: int
    before: frozenset[int]
    nearest: frozenset[int]


class DeadActivations(SiteWatcher[_Key, DeadActivation]):
    """Activations that give the ends of their range only."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._fresh: dict[_Key, _Dead] = {}
        """Activations that gave nothing but ends since the last backward pass began."""
        self._now: dict[_Key, _Dead] = {}
        """Those of this step whose loss was not 0."""
        self._alive: set[_Key] = set()
        self._calls: Counter[tuple[Place, str]] = Counter()
        self._allowance = half.Allowance(0.1, 0.01)

    def install(self) -> None:
        """In sampled steps, hear activations that have a flat part."""
        self.host.hear((*_RELUS, *_CLAMPED, *_OTHERS), self._activated)

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
        name = bare_name(func).strip("_")
        if plain is not None and _is_dead(plain, args[1:3] if func in _CLAMPED else _ENDS.get(name, (0.0,))):
            self._fresh[key] = _Dead(name, out.numel(), *_weights_before(args[0].grad_fn))
        elif plain is not None:
            self._alive.add(key)
        self._allowance.spend(began)

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """Where a loss is 0, so are all gradients: those of other losses of the step say nothing about it."""
        if self._fresh and not is_grad:
            losses = [plain_values(one) for one in tensors_within([tensors])]
            if any(one is not None and bool(one.any()) for one in losses):
                self._now.update(self._fresh)
            self._fresh.clear()

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """Which parameters get a gradient of 0?"""
        if not self._now:
            return
        began = time.thread_time()
        still, moved = [], set()
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            gradient = gradient_of(parameter)
            plain = plain_values(gradient) if gradient is not None and gradient.dim() > 1 else None
            if plain is not None and plain.any():
                moved.add(id(parameter))
            elif plain is not None:
                still.append(parameter)
        if still:
            self._add(still, moved)
        self._allowance.spend(began)

    def _add(self, all_still: list[torch.Tensor], moved: set[int]) -> None:
        names = self.host.known.parameter_names()
        for key, dead in self._now.items():
            still = [parameter for parameter in all_still if id(parameter) in dead.before]
            # Another weight may have a gradient of 0 for another reason: what gives to a dead activation has one.
            if not still or not dead.nearest.isdisjoint(moved):
                continue
            record = self.sites.get(key)
            if record is None:
                record = DeadActivation(
                    place=key[0], module=key[1], number=key[2], operator=dead.name, since=self.host.step
                )
                self.sites[key] = record
            record.steps += 1
            record.numbers += dead.numbers
            record.weights, record.moved = len(still), len(moved)
            record.names = [names.get(id(p), "") for p in still[:_NAMES]]

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended. What came back to life was not dead."""
        for key in self._alive:
            self.sites.pop(key, None)
        self._fresh.clear()
        self._now.clear()
        self._calls.clear()
        self._alive.clear()

    def restarted(self) -> None:
        """Steps are counted anew."""
        self.sites.clear()

    def totals(self, tick: int) -> Iterable[Record]:
        """Those that are dead."""
        return [*self.sites.values()]


def _weights_before(node: graphs.Node | None) -> tuple[frozenset[int], frozenset[int]]:
    """The weights that a graph comes from, by id, and those of them that the fewest nodes are between; none where a
    parameter itself is given."""
    before: set[int] = set()
    nearest: frozenset[int] = frozenset()
    level = [node] if node is not None else []
    seen = {*level}
    while level and len(seen) <= _NODES:
        leaves = [leaf for one in level if (leaf := getattr(one, "variable", None)) is not None]
        found = {id(leaf) for leaf in leaves if leaf.dim() > 1}
        nearest = nearest or frozenset(found)
        before |= found
        further = {parent for one in level for parent, _ in one.next_functions if parent is not None}
        level = [*(further - seen)]
        seen |= further
    return frozenset(before), nearest


def _is_dead(given: torch.Tensor, ends: tuple[float, ...]) -> bool:
    """Whether all numbers are one of the ends."""
    some = given.flatten()[:_FIRST] if given.is_contiguous() else given
    for part in (some, given):
        beside = part if ends == (0.0,) else torch.stack([part != end for end in ends]).all(0)
        if bool(beside.any()):
            return False
    return True
