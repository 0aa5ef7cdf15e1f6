"""What is done to gradients between backward and step: clipping, clearing; and schedulers, which follow the step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any

import torch

from torchvet.probes import frames
from torchvet.probes.loss_marks import Mark
from torchvet.probes.scaled_gradients import Clip, Part, Witness
from torchvet.probes.scaler_calls import LOOKS, SMALL, Scene
from torchvet.recording.records import Place

_BY_HAND = 0.01
"""A threshold of at least this share of the scale, from a program that has asked for the scale, is one times it."""


class GradientCalls:
    """Told of calls of torch's functions; each method returns what to do afterwards."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._scalers, self._gradients = scene.scalers, scene.gradients

    def clip(self, parameters: Any, given: Any, by_value: bool) -> tuple[Any, Callable[[Any], None]]:
        """Gradients are clipped. Returns the parameters to hand on: the same, noted as they are gone through."""
        self._gradients.check()
        clipped: list[Witness] = []
        largest = self._largest_scaled() if by_value else None
        place = frames.user_place()

        def done(norm: Any) -> None:
            self._clipped(clipped, float(given), norm, largest, place)

        return self._noted(parameters, clipped), done

    def _noted(self, parameters: Any, clipped: list[Witness]) -> Any:
        known = self._gradients.known
        if not isinstance(parameters, Iterator):
            given = [parameters] if isinstance(parameters, torch.Tensor) else parameters
            clipped += [w for w in map(known, given) if w is not None]
            return parameters

        def passing() -> Iterator[Any]:
            for parameter in parameters:
                witness = known(parameter)
                if witness is not None:
                    clipped.append(witness)
                yield parameter

        # torch warns of an empty generator, and of no other iterator.
        return passing() if isinstance(parameters, GeneratorType) else map(_same, passing())

    def _largest_scaled(self) -> float | None:
        """The largest element of gradients that are scaled, as far as they are small."""
        found = [w.gradient() for w in self._gradients.all() if _scaled_in(w.fresh)]
        looked = [g for g in found if g is not None and g.layout is torch.strided and 0 < g.numel() <= SMALL]
        return max((float(g.detach().abs().max()) for g in looked), default=None)

    def _clipped(
        self, clipped: list[Witness], limit: float, norm: Any, largest: float | None, place: Place | None
    ) -> None:  # fmt: skip
        clip: Clip | None = None
        for witness in clipped:
            witness.stamp = witness.now()
            scaled = _scaled_in(witness.fresh)
            state = self._scalers.by_number.get(scaled.scaler) if scaled is not None else None
            if state is None:
                continue
            if clip is None:
                scale = state.scale()
                if state.asked == state.generation and scale and limit >= _BY_HAND * scale:
                    return
                state.looks += 1
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
                state.use.schedule_spent += attempts[0] == attempts[1]
        self._scene.attempts[id(optimizer)] = [0, 0]


def _same(one: Any) -> Any:
    return one


def _scaled_in(parts: list[Part]) -> Mark | None:
    return next((p.mark for p in parts if p.mark is not None and p.power > 0), None)
