"""Samples losses and gradient norms over the whole run: those of all steps at first, then at ever larger distances."""

from __future__ import annotations

import math
import time
import weakref
from typing import Any

import torch

from torchvet.probes.base.kit import Host
from torchvet.probes.internals import private
from torchvet.probes.internals.finite import PLAIN, numeric
from torchvet.probes.internals.simulated import numbers
from torchvet.recording.records.nonfinite import NumberSamples

_DENSE = 32
"""Steps up to which each is sampled; from then on there are some 22 samples each time that the run doubles."""
_PENDING = 64
"""Samples that may be lost with a process that is killed."""
_SHARE = 100
"""Times as long as a norm took must pass before the next: it reads all gradients once more."""
_ALLOWANCE = 0.03
"""Seconds that norms may take in all before that holds: a short run would have too few of them."""
_WIDE = frozenset([torch.float32, torch.float64, torch.bfloat16])
"""Dtypes in which a norm does not overflow where no element comes near that."""


class Turn:
    """Whose turn it is: the first event of a step, every so many events. A steady step only counts them down."""

    def __init__(self) -> None:
        self.left = 1
        """Events until it is to be asked."""
        self._seen: int | None = None

    def comes(self, step: int) -> bool:
        """Whether this event is the first of a step; asked once no events are `left`."""
        seen, self._seen = self._seen, step
        # The first question only notes the step: it may have come amid one.
        return seen is not None and step != seen

    def taken(self, step: int) -> None:
        """It was: the next one comes later."""
        self.left = max(1, step // _DENSE)
        # With events skipped nobody knows where the next step begins: it is found again by a change.
        self._seen = step if self.left == 1 else None


class NumberSampler:
    """The loss and the norm of some steps. Numbers are read where torchvet has read them anyway: on the host, or on a
    device beside what waits for it already."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._scaled: tuple[weakref.ref[Any], weakref.ref[Any], weakref.ref[Any]] | None = None
        """The last scaled loss, what it was made of, and the scaler that made it."""
        self.restart()

    def restart(self) -> None:
        """Steps are counted anew, by a stronger signal: nothing of before compares."""
        self.losses, self.norms = Turn(), Turn()
        """By backward passes, and by steps of optimizers."""
        self._next_norm = self._spent = 0.0
        self._record = NumberSamples()

    def scaled(self, result: Any, scaler: Any, outputs: Any, *_: Any, **__: Any) -> None:
        """A scaler has made one loss of another: the one that it was given is the loss."""
        if isinstance(outputs, torch.Tensor) and isinstance(result, torch.Tensor):
            # Weak, since a loss holds its graph.
            self._scaled = weakref.ref(result), weakref.ref(outputs), weakref.ref(scaler)

    def one_of(self, losses: list[torch.Tensor]) -> None:
        """A backward pass begins from these: the first is its loss, if it is this pass's turn."""
        if losses:
            self.losses.left -= 1
            if self.losses.left <= 0:
                self.loss(losses[0])

    def loss(self, given: torch.Tensor) -> None:
        """A backward pass begins here."""
        step = self._host.step
        if not self.losses.comes(step):
            return
        unscaled, scaler = self._unscaled(given)
        root = numbers(unscaled)
        # A subclass spread over ranks would wait for the others.
        if type(root) is not torch.Tensor or root.numel() != 1 or not numeric(root):
            return
        self.losses.taken(step)
        value = float(root.item())
        self._record.loss_steps.append(step)
        # JSON has no NaN.
        self._record.losses.append(value if math.isfinite(value) else None)
        self._record.scales.append(float(scaler.get_scale()) if scaler is not None else None)
        self._written(_PENDING)

    def _unscaled(self, root: torch.Tensor) -> tuple[Any, Any]:
        """The loss, None where only the product lives on; and the scaler, None where there is none."""
        # By identity: the program may have done something with the product.
        if self._scaled is None or self._scaled[0]() is not root:
            return root, None
        return self._scaled[1](), self._scaled[2]()

    def norm(self, gradients: list[torch.Tensor]) -> None:
        """An optimizer steps with these."""
        started = time.perf_counter()
        step = self._host.step
        if not self.norms.comes(step) or started < self._next_norm or not gradients:
            return
        self.norms.taken(step)
        plain = list(map(numbers, gradients))
        kinds = {(type(g) in PLAIN, g.layout, g.device, g.dtype) for g in plain}
        if len(kinds) > 1 or not (type(plain[0]) in PLAIN and plain[0].dtype in _WIDE and all(map(numeric, plain))):
            return
        with torch.set_grad_enabled(False):  # `no_grad` is tapped (`train_mode.py`)
            norms = torch.stack(private.foreach_norm([g.detach() for g in plain]))
            # The norm of the norms is the norm of all. In double, so that squares do not overflow.
            value = float(torch.linalg.vector_norm(norms.double()).item())
        took = time.perf_counter() - started
        self._spent += took
        self._next_norm = started + _SHARE * took if self._spent > _ALLOWANCE else 0.0
        self._record.norm_steps.append(step)
        self._record.norms.append(value if math.isfinite(value) else None)

    def write(self) -> None:
        """What was sampled since the last time."""
        self._written(1)

    def _written(self, least: int) -> None:
        if len(self._record.loss_steps) + len(self._record.norm_steps) >= least:
            self._host.write(self._record)
            self._record = NumberSamples()
