"""What is done to gradients between backward and step: clipping, clearing; and schedulers, which follow the step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any

import torch

from torchvet.probes.base.kit import Place, frames
from torchvet.probes.precision.loss_marks import Mark
from torchvet.probes.precision.scaled_gradients import Clip, Part, Witness
from torchvet.probes.precision.scaler_calls import LOOKS, SMALL, Scene
from torchvet.probes.precision.scaling_faults import Faults

_BY_HAND = 0.01
"""A threshold of at least this share of the scale, from a program that has asked for the scale, is one times it."""


class GradientCalls:
    """Hears calls of torch's functions; each method returns what to do afterwards."""

    def __init__(self, scene: Scene, faults: Faults) -> None:
        self._scene = scene
        self._scalers, self._gradients = scene.scalers, scene.gradients
        self._faults = faults

    def clip(self, parameters: Any, given: Any, by_value: bool) -> tuple[Any, Callable[[Any], None]]:
        """Gradients are clipped. Returns the parameters to hand on: the same, noted as they are gone through."""
        # Before clipping: afterwards values are changed and cannot be told from others.
        self._gradients.check()
        clipped: list[int] = []
        largest = self._largest_scaled() if by_value else None
        place = frames.user_place()

        def done(norm: Any) -> None:
            self._clipped(self._gradients.among(clipped), float(given), norm, largest, place)

        # `clip_grad_norm_` takes a generator as well.
        return _noted(parameters, clipped), done

    def _largest_scaled(self) -> float | None:
        """The largest element of gradients that are scaled, as far as they are small."""
        found = [w.gradient() for w in self._gradients.all() if _scaled_in(w.fresh)]
        looked = [g for g in found if g is not None and g.layout is torch.strided and 0 < g.numel() <= SMALL]
        return max((float(g.detach().abs().max()) for g in looked), default=None)

    def _clipped(
        self, clipped: list[Witness], limit: float, norm: Any, largest: float | None, place: Place | None
    ) -> None:
        clip: Clip | None = None
        sound: set[int] = set()
        for witness in clipped:
            witness.stamp = witness.now()
            # Parameters share the list of parts that went into them: one answer for all.
            if witness.unknown or id(witness.parts) in sound:
                continue
            scaled = _scaled_in(witness.fresh)
            state = self._scalers.by_number.get(scaled.scaler) if scaled is not None else None
            if state is None:
                sound.add(id(witness.parts))
                continue
            if clip is None:
                scale = state.scale()
                # The threshold was multiplied by the scale: clipping scaled gradients is then right.
                if state.asked == state.generation and scale and limit >= _BY_HAND * scale:
                    return
                state.looks += 1
                # Reading it makes the host wait for a device.
                if isinstance(norm, torch.Tensor) and (norm.device.type == "cpu" or state.looks <= LOOKS):
                    largest = float(norm)
                clip = Clip(place, limit, largest, scale, state.number)
            witness.clips = [*witness.clips, clip]

    def scheduled(self, optimizer: Any) -> None:
        """A scheduler of this optimizer steps."""
        attempts = self._scene.attempts.get(id(optimizer))
        if attempts is None or not attempts[0]:
            return
        for state in self._scalers.live():
            if id(optimizer) in state.optimizers:
                state.use.schedule_steps += 1
                state.use.schedule_place = state.use.schedule_place or frames.user_place()
                # All attempts since the last call were skipped: the schedule moved without a step.
                state.use.schedule_spent += attempts[0] == attempts[1]
        self._scene.attempts[id(optimizer)] = [0, 0]

    def read(self, operator: Any, tensors: Any) -> None:
        """A number is made of tensors: of scaled ones it is none that a person wants."""
        tensors = tensors[0] if tensors and isinstance(tensors[0], (list, tuple)) else tensors[:1]
        # By address of the data: views and `detach()` have objects of their own.
        keys = {t.data_ptr() for t in tensors if isinstance(t, torch.Tensor) and t.numel()}
        norm = "norm" in str(operator)
        for number, place in self._scaled_gradients(keys) if norm else self._scaled_losses(keys):
            state = self._scalers.by_number.get(number)
            if state is not None:
                state.reads.append(("norm-read" if norm else "loss-read", frames.user_place(), place))
                return

    def _scaled_losses(self, keys: set[int]) -> Iterator[tuple[int, Place | None]]:
        for ref, number in self._scene.losses:
            loss = ref()
            if loss is not None and loss.data_ptr() in keys:
                yield number, None

    def _scaled_gradients(self, keys: set[int]) -> Iterator[tuple[int, Place | None]]:
        for witness in self._gradients.all():
            mark, gradient = _scaled_in(witness.fresh), witness.gradient()
            if mark is not None and gradient is not None and gradient.data_ptr() in keys:
                yield mark.scaler, witness.fresh[-1].place


def _noted(parameters: Any, identities: list[int]) -> Any:
    """The same parameters, whose identities are noted as they are gone through."""
    if not isinstance(parameters, Iterator):
        identities += map(id, [parameters] if isinstance(parameters, torch.Tensor) else parameters)
        return parameters
    # To look into an iterator first would use it up: it is noted as torch goes through it.
    note = identities.append
    passing = (p for p in parameters if note(id(p)) is None)
    # torch warns of an empty generator, and of no other iterator.
    return passing if isinstance(parameters, GeneratorType) else itertools.chain(passing)


def _scaled_in(parts: list[Part]) -> Mark | None:
    return next((p.mark for p in parts if p.mark is not None and p.power > 0), None)
