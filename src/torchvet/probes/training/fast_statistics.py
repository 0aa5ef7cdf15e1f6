"""Looks for batch norm whose running statistics are the last batch's, and how far they jump between two steps."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Record, StepKind, Watcher, frames
from torchvet.probes.base.schedule import Checkups
from torchvet.probes.internals import private
from torchvet.recording.records.training import FAST, FastStatistics

_MOST_PASSES = 400
"""Forward passes that are heard of at most: each costs time."""
_LAYERS = 64
"""Layers of a model that are looked at."""


@dataclass
class _Model:
    """A model with such layers, and their statistics at the end of the step before."""

    ref: weakref.ref[torch.nn.Module]
    record: FastStatistics
    before: list[tuple[weakref.ref[Any], torch.Tensor]] = field(default_factory=list)
    tick: int = -1


class JumpingStatistics(Watcher):
    """Batch norm with a large momentum, of models that optimizers step. Models are held weakly."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._checkups = Checkups()
        self._heard = 0
        self._found: dict[int, _Model] = {}

    def settle(self, tick: int, kind: StepKind) -> None:
        """At a few steps of training and those after them: how far have the statistics moved?"""
        for known in self._found.values():
            if known.before and tick == known.tick + 1 and kind == "training":
                _compare(known)
            known.before = []
        if kind == "training" and self._checkups.due(tick):
            owned = self.host.known.owned()
            for model in self.host.known.live_roots():
                if model.training and any(id(p) in owned for p in model.parameters()):
                    self._look(model, tick)

    def _look(self, model: torch.nn.Module, tick: int) -> None:
        layers = list(_fast(model))
        if not layers:
            return
        known = self._found.get(id(model))
        if known is None or known.ref() is not model:
            largest = max(layer.momentum for layer in layers)
            record = FastStatistics(model=type(model).__name__, layers=len(layers), momentum=largest)
            known = self._found[id(model)] = _Model(weakref.ref(model), record)
        known.tick = tick
        known.before = [(weakref.ref(layer), layer.running_mean.detach().clone()) for layer in layers[:_LAYERS]]

    def forward_ended(self, module: torch.nn.Module, output: Any) -> None:
        """Does one of them evaluate?"""
        self._heard += bool(self._found)
        known = self._found.get(id(module))
        if known is not None and known.ref() is module and not module.training:
            known.record.used = known.record.used or frames.user_place(3)

    def wants_modules(self) -> bool:
        """Whether an evaluation that begins may be one's, of which that is not known yet."""
        return self._heard < _MOST_PASSES and any(known.record.used is None for known in self._found.values())

    def totals(self, tick: int) -> Iterable[Record]:
        """See `Watcher`."""
        return [known.record for known in self._found.values() if known.record.looks]

    def finish(self, how: str, error: BaseException | None) -> None:
        """Nothing of the program's is to be held."""
        for known in self._found.values():
            known.before = []


def _fast(model: torch.nn.Module) -> Iterator[Any]:
    """Batch norm layers in train mode whose statistics are the last batch's by more than a half."""
    for layer in model.modules():
        if isinstance(layer, private.BatchNorms) and layer.training and layer.running_mean is not None:
            momentum = layer.momentum
            # None averages all batches alike.
            if isinstance(momentum, float) and momentum >= FAST and layer.running_mean.device.type == "cpu":
                yield layer


def _compare(known: _Model) -> None:
    """By how many standard deviations the means of a layer's channels have moved; of the layer that jumps most."""
    moved = []
    for ref, before in known.before:
        layer = ref()
        now = layer.running_mean if layer is not None else None
        if now is not None and layer is not None and layer.running_var is not None and now.shape == before.shape:
            spread = layer.running_var.detach().clamp_min(0).sqrt() + 1e-12
            moved.append(float(((now.detach() - before).abs() / spread).median()))
    if moved:
        known.record.looks += 1
        known.record.jumps.append(max(moved))
