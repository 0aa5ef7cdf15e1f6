"""Looks for batch norm that trains on batches of one sample, and how far each sample lies from the running statistics
that an evaluation uses.

In sampled steps, operators of batch norm give the mean and the spread of a sample's channels, and their backward passes
the gradients of the layer's weights. From these it follows, to first order and without another pass, how the sample's
loss changes if the running statistics normalize it.
"""

from __future__ import annotations

import math
import statistics
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import EVERY_STEP, Host, Place, Record, StepKind, overloads, tensors_within
from torchvet.probes.internals import private
from torchvet.probes.internals.simulated import plain_values
from torchvet.probes.numerics import half
from torchvet.probes.training.modes.used_statistics import Looked, UsedStatistics
from torchvet.recording.records.layers import SingleSamples
from torchvet.recording.records.training import FAST

_FORWARD = overloads("native_batch_norm _native_batch_norm_legit cudnn_batch_norm miopen_batch_norm")
_BACKWARD = overloads("native_batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward")
_SETTLED = 3.0
"""Times `1 / momentum` batches after which running statistics follow: what they began with weighs 5 % then."""
_AVERAGED = 0.1
"""The momentum that one that averages all batches counts as."""
_LAST = 16
"""Passes that are kept: the last ones, of a model that has learned something."""
_MOST_LAYERS = 512
_FIRST, _APART, _WINDOWS = 32, 1.5, 8
"""The step of the first window that is asked for once samples came one by one, how many times as many steps later the
next one is, and how many there are: those that a run has anyway are mostly earlier than its statistics settle."""


@dataclass
class _Layer:
    """A layer, and the shifts of the samples that it had last."""

    ref: weakref.ref[torch.nn.Module]
    model: _Model
    name: str
    began: int
    """Batches that it had seen at the first look."""
    positions: int = 0
    place: Place | None = None
    shifts: deque[float] = field(default_factory=lambda: deque(maxlen=_LAST))


@dataclass
class _Model(Looked[SingleSamples]):
    """A model with such layers, and the shares by which losses change."""

    layers: list[_Layer] = field(default_factory=list)
    effects: deque[float] = field(default_factory=lambda: deque(maxlen=_LAST))
    change: float | None = None
    """Of the backward pass that is under way."""


class _Pass(NamedTuple):
    """A pass of one sample through a layer: per channel, what its output changes by if the running statistics normalize
    it, as a factor of what it is and as a distance."""

    layer: _Layer
    stretch: torch.Tensor
    shift: torch.Tensor


class SingleSamplesProbe(UsedStatistics[_Model]):
    """Batch norm that trains on batches of one sample."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._layers: dict[int, _Layer] = {}
        self._under_way: dict[int, _Pass] = {}
        """By the storage of the sample's means, which the graph keeps."""
        self._loss = 0.0
        self._asked = 0
        """Windows so far."""
        self._allowance = half.Allowance(0.1, 0.01)

    def install(self) -> None:
        """In sampled steps, hear batch norm and its gradients."""
        self.host.hear(_FORWARD, self._normalized)
        self.host.hear(_BACKWARD, self._went_back)

    def _normalized(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        module = self.host.ledger.running()
        # Instance norm calls the same operators, with statistics of its own making.
        if not args[5] or not isinstance(module, private.BatchNorms) or args[3] is not module.running_mean:
            return
        if not torch.is_grad_enabled() or args[3] is None or not self._allowance.left():
            return
        began = time.thread_time()
        single = args[0].shape[0] == 1
        layer = self._layer(module, single)
        if layer is not None:
            layer.model.record.passes += 1
            layer.model.record.single += single
            if single and _has_settled(module, layer):
                self._look(layer, args, out)
        self._allowance.spend(began)

    def _layer(self, module: Any, single: bool) -> _Layer | None:
        """What is known of a layer; of one that gets one sample for the first time, from now on."""
        known = self._layers.get(id(module))
        if known is not None and known.ref() is module:
            return known
        # Statistics of a large momentum are the last batch's, whatever its size: `JumpingStatistics` tells.
        fast = isinstance(module.momentum, float) and module.momentum >= FAST
        if not single or fast or module.num_batches_tracked is None or len(self._layers) >= _MOST_LAYERS:
            return None
        for root in self.host.known.live_roots():
            names = [name for name, one in root.named_modules() if one is module]
            if names and root is not module:
                model = self.known(root)
                if model is None:
                    model = _Model(weakref.ref(root), SingleSamples(model=type(root).__name__))
                    self._found[id(root)] = model
                layer = _Layer(weakref.ref(module), model, names[0], int(module.num_batches_tracked))
                model.layers.append(layer)
                self._layers[id(module)] = layer
                return layer
        return None

    def _look(self, layer: _Layer, args: tuple[Any, ...], out: Any) -> None:
        tensors = [plain_values(one) for one in (args[3], args[4], out[1], out[2])]
        mean, var, own, inverse = (one.float() if one is not None else None for one in tensors)
        if mean is None or var is None or own is None or inverse is None or own.shape != mean.shape:
            return
        # The operator has moved the running mean by the momentum already.
        distance = (own - mean) / (1 - args[6])
        scale = (var + args[7]).rsqrt()
        layer.positions = math.prod(args[0].shape[2:])
        layer.place = layer.place or self.host.line()
        shift = float((distance * scale).abs().median())
        # JSON has no infinity.
        if math.isfinite(shift):
            layer.shifts.append(shift)
        self._under_way[out[1].untyped_storage()._cdata] = _Pass(layer, scale / inverse - 1, distance * scale)

    def _went_back(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if not self._under_way or args[2] is None or out[1] is None or out[2] is None:
            return
        keys = (one.untyped_storage()._cdata for one in tensors_within(args[3:7]))
        one = next((self._under_way.pop(key) for key in keys if key in self._under_way), None)
        weight, of_weight, of_bias = (plain_values(tensor) for tensor in (args[2], out[1], out[2]))
        if one is None or weight is None or of_weight is None or of_bias is None or not of_bias.numel():
            return
        change = (one.stretch * of_weight.float() + one.shift * of_bias.float()) * weight.float()
        model = one.layer.model
        model.change = (model.change or 0.0) + float(change.sum())

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """The loss that gradients are of."""
        if not self._under_way:
            return
        for model in self._found.values():
            model.change = None
        losses = [plain_values(one) for one in tensors_within([tensors]) if one.numel() == 1]
        self._loss = 0.0 if is_grad else sum(float(one) for one in losses if one is not None)

    def backward_ended(self, is_grad: bool) -> None:
        """By which share does it change?"""
        for model in self._found.values():
            # A loss below 0 has no share: its 0 is anywhere.
            if model.change is not None and self._loss > 0 and math.isfinite(model.change / self._loss):
                model.effects.append(model.change / self._loss)
            model.change = None

    def evaluating(self, module: torch.nn.Module) -> _Model | None:
        """See `UsedStatistics`. What runs may be the model without its wrapper, or layers that stay in train mode."""
        running = {id(one) for one in module.modules() if not one.training}
        waiting = (model for model in self._found.values() if model.record.used is None)
        return next((m for m in waiting if any(id(layer.ref()) in running for layer in m.layers)), None)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: graphs of other passes are gone, or go back too late to tell."""
        self._under_way.clear()
        # Also outside of windows this is heard once, in the step after one.
        if self._found and self.host.schedule.awaited is None and self._asked < _WINDOWS:
            self._asked += 1
            self.host.schedule.awaited = max(_FIRST, int(tick * _APART))

    def totals(self, tick: int) -> Iterable[Record]:
        """See `Watcher`."""
        return list(self._told())

    def _told(self) -> Iterator[SingleSamples]:
        for model in self._found.values():
            layers = [one for one in model.layers if one.shifts]
            if layers:
                worst = max(layers, key=lambda one: statistics.median(one.shifts))
                record = model.record
                record.place, record.layer, record.layers = worst.place, worst.name, len(model.layers)
                record.positions, record.looks = worst.positions, len(worst.shifts)
                record.shift = statistics.median(worst.shifts)
                record.losses = len(model.effects)
                record.effect = statistics.median(model.effects) if model.effects else 0.0
                yield record


def _has_settled(module: Any, layer: _Layer) -> bool:
    """Whether running statistics follow what they are given: they begin with 0 and 1, or with another data set's."""
    momentum = module.momentum or _AVERAGED
    return int(module.num_batches_tracked) - layer.began >= _SETTLED / momentum
