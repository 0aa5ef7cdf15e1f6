"""Writes down the loss of every step: what backward starts from, before a scaler has scaled it."""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Optimizer, StepKind, Watcher, tap
from torchvet.probes.internals.finite import numeric
from torchvet.probes.internals.simulated import numbers
from torchvet.probes.objects.containers import tensors_in
from torchvet.recording.records.verify import Losses


class LossCurve(Watcher):
    """The loss of each step."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._values: list[float | None] = []
        self._gradients: list[float | None] = []
        self._scaled: tuple[weakref.ref[torch.Tensor], float] | None = None

    @classmethod
    def wanted(cls, options: Any) -> bool:
        """Only where runs are compared: a number taken from a device waits for it."""
        return bool(options.losses)

    def install(self) -> None:
        """Hear what a scaler was given."""
        self.replace(torch.amp.GradScaler, "scale", tap(self.host, "the loss of each step", after=self._was_scaled))

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """A backward pass begins here."""
        if is_grad:
            return
        for root in (tensors,) if isinstance(tensors, torch.Tensor) else tensors_in(tensors, 2):
            if root.numel() == 1:
                ref, unscaled = self._scaled or (None, 0.0)
                value = unscaled if ref is not None and ref() is root else _number(root)
                self._values.append(value if math.isfinite(value) else None)

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """The gradients that a step is made with."""
        gradients = [
            numbers(g) for group in optimizer.param_groups for p in group["params"] if (g := p.grad) is not None
        ]
        # Scaled gradients have no norm to compare.
        if self._scaled is None and gradients and all(numeric(g) for g in gradients):
            norm = math.sqrt(sum(float(g.detach().double().square().sum()) for g in gradients))
            self._gradients.append(norm if math.isfinite(norm) else None)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended."""
        if self._values or self._gradients:
            self.host.write(Losses(tick=tick, values=self._values, gradients=self._gradients))
            self._values, self._gradients = [], []

    def finish(self, how: str, error: BaseException | None) -> None:
        """What the last, unfinished step had."""
        self.boundary(self.host.step, "training")

    def _was_scaled(self, result: Any, scaler: Any, outputs: Any) -> None:
        if isinstance(outputs, torch.Tensor) and outputs.numel() == 1:
            self._scaled = weakref.ref(result), _number(outputs)


def _number(tensor: torch.Tensor) -> float:
    return float(tensor.detach().double())
