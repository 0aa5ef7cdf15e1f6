"""Looks for batch norm whose running statistics are the last batch's, and how far they jump between two steps."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Record, StepKind
from torchvet.probes.base.schedule import Checkups
from torchvet.probes.internals import private
from torchvet.probes.training.modes.used_statistics import Looked, UsedStatistics
from torchvet.recording.records.training import FAST, FastStatistics

_LAYERS = 64
"""Layers of a model that are looked at."""


@dataclass
class _Model(Looked[FastStatistics]):
    """A model with such layers, and their statistics at the end of the step before."""

    before: list[tuple[weakref.ref[Any], torch.Tensor]] = field(default_factory=list)
    tick: int = -1


class JumpingStatistics(UsedStatistics[_Model]):
    """Batch norm with a large momentum, of models that optimizers step. Models are held weakly."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._checkups = Checkups()

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
        known = self.known(model)
        if known is None:
            largest = max(layer.momentum for layer in layers)
            record = FastStatistics(model=type(model).__name__, layers=len(layers), momentum=largest)
            known = self._found[id(model)] = _Model(weakref.ref(model), record)
        known.tick = tick
        known.before = [(weakref.ref(layer), layer.running_mean.detach().clone()) for layer in layers[:_LAYERS]]

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
