"""Looks for layers whose units are one: their weights begin equal, get equal gradients, and stay equal."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import init

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import (
    EVERY_STEP,
    Host,
    Optimizer,
    Place,
    Record,
    SiteWatcher,
    called_by_user,
    tap,
)
from torchvet.probes.internals.simulated import plain_values
from torchvet.probes.numerics import half
from torchvet.recording.records.layers import AlikeUnits

_WHAT = "units whose weights are equal"
_CONSTANT = ("constant_", "zeros_", "ones_")
_MOST = 1 << 22
"""Numbers of a weight that is looked at."""
_WEIGHTS = 64
"""Weights that are followed at most."""
_NEAR = 1e-3
"""The share of the largest number by which equal units may differ: products of matrices round them unlike."""


class AlikeUnitsProbe(SiteWatcher[int, AlikeUnits]):
    """Layers whose units stay equal."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._filled: dict[int, tuple[weakref.ref[torch.Tensor], Place]] = {}
        """Weights that a line filled with one number."""
        self._followed: dict[int, weakref.ref[torch.Tensor]] = {}
        self._seen: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._allowance = half.Allowance(0.1, 0.01)

    def install(self) -> None:
        """Hear what fills weights with one number."""
        for name in _CONSTANT:
            self.replace(init, name, tap(self.host, _WHAT, after=self._constant))

    def _constant(self, _: Any, given: Any, *__: Any, **___: Any) -> None:
        if isinstance(given, torch.Tensor) and given.dim() > 1 and len(self._filled) < _WEIGHTS:
            place = called_by_user()
            if place is not None:
                self._filled[id(given)] = weakref.ref(given), place

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """Are the weights that began equal still so? Which began so, where that is not known yet?"""
        if not self._allowance.left():
            return
        began = time.thread_time()
        if optimizer not in self._seen:
            self._seen.add(optimizer)
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                self._begin(parameter)
        for key, reference in [*self._followed.items()]:
            parameter = reference()
            gradient = gradient_of(parameter) if parameter is not None else None
            if parameter is None or (gradient is not None and not self._stays(parameter, gradient)):
                del self._followed[key]
                self.sites.pop(key, None)
        self._allowance.spend(began)

    def _begin(self, parameter: torch.Tensor) -> None:
        plain = plain_values(parameter) if parameter.dim() > 1 and parameter.numel() <= _MOST else None
        if plain is None or plain.shape[0] < 2 or len(self._followed) >= _WEIGHTS or not _is_alike(plain):
            return
        filled, place = self._filled.get(id(parameter), (None, None))
        key = id(parameter)
        self._followed[key] = weakref.ref(parameter)
        self.sites[key] = AlikeUnits(
            id=len(self.sites),
            place=place if filled is not None and filled() is parameter else None,
            name=self.host.known.parameter_names().get(key, ""),
            shape=tuple(plain.shape),
            value=float(plain.flatten()[0]) if bool((plain == plain.flatten()[0]).all()) else None,
        )

    def _stays(self, parameter: torch.Tensor, gradient: torch.Tensor) -> bool:
        weights, pull = plain_values(parameter), plain_values(gradient)
        if weights is None or pull is None or not (_is_alike(weights) and _is_alike(pull)):
            return False
        record = self.sites[id(parameter)]
        record.steps += record.last != self.host.tick
        record.last = self.host.tick
        record.pulled += bool(pull.any())
        return True

    def restarted(self) -> None:
        """Steps are counted anew."""
        for record in self.sites.values():
            record.steps = record.pulled = 0

    def totals(self, tick: int) -> Iterable[Record]:
        """Those whose units are equal."""
        return [record for record in self.sites.values() if record.steps]


def _is_alike(units: torch.Tensor) -> bool:
    """Whether all rows are the first one, but for rounding."""
    # Most layers are told by their first two rows.
    for part in (units[:2], units):
        difference = (part - units[:1]).abs().max()
        if not bool(difference <= _NEAR * units[:1].abs().max()):
            return False
    return True
