"""Follows the parameters of an optimizer through a run: whose gradient stopped, whose was zero whenever looked at."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import Optimizer

_SOON = 3
"""A parameter whose gradient stops after so many steps was hardly trained on purpose until then."""
_LATER = 30
"""Steps without a gradient from which on one has stopped."""
_LOOKS = 5
"""Looks from which on something is no accident."""


@dataclass
class GradientHistory:
    """What was seen of one optimizer's parameters, by their identity."""

    last: dict[int, int] = field(default_factory=dict)
    """The last step that is known to have had a gradient."""
    versions: dict[int, int] = field(default_factory=dict)
    """At the last look: an optimizer's step raises the version of what it changes."""
    zeros: dict[int, int] = field(default_factory=dict)
    """Of those whose gradient was zero at the start of each step that was looked at: how often it was."""
    zero_looks: int = 0
    changed: dict[int, int] = field(default_factory=dict)
    """The last look that found it changed."""
    looks: int = 0

    def had(self, parameter: torch.Tensor, step: int) -> None:
        """It has a gradient in this step, one of the first, all of which are looked at."""
        self.last[id(parameter)] = step

    def look(self, optimizer: Optimizer, step: int) -> None:
        """A step has ended."""
        self.looks += 1
        for parameter in _trainable(optimizer):
            key, gradient = id(parameter), gradient_of(parameter)
            # Changed although no gradient is there now: it was stepped and cleared in between.
            if self.versions.get(key, parameter._version) != parameter._version:
                self.changed[key] = self.looks
            self.versions[key] = parameter._version
            if gradient is not None or self.changed.get(key) == self.looks:
                self.last[key] = step

    def look_for_zero(self, optimizer: Optimizer) -> None:
        """A step begins: whose gradient is zero? Once it has ended an optimizer of the program's may have cleared them
        in place. One that was not zero once is not looked at again."""
        self.zero_looks += 1
        for parameter in _trainable(optimizer):
            key = id(parameter)
            # One that appears later was not looked at from the beginning.
            times = self.zeros.get(key, 0 if self.zero_looks == 1 else -1)
            gradient = gradient_of(parameter) if times >= 0 else None
            zero = gradient is not None and gradient.layout is torch.strided and not bool(gradient.detach().any())
            self.zeros[key] = times + 1 if zero else -1

    def stopped(self, optimizer: Optimizer, steps: int) -> list[torch.Tensor]:
        """Those that had a gradient in the very first steps and in none of the many after them, while the same
        optimizer changed others. One that was frozen meanwhile is not among them."""
        # The optimizer itself has not stopped.
        goes_on = any(self.changed.get(id(p)) == self.looks for p in _trainable(optimizer))
        if self.looks < _LOOKS or not goes_on:
            return []
        last = ((p, self.last.get(id(p))) for p in _trainable(optimizer))
        return [p for p, step in last if step is not None and step <= _SOON and steps - step >= _LATER]

    def zero(self, optimizer: Optimizer) -> list[torch.Tensor]:
        """Those whose gradient was exactly zero whenever looked at."""
        return [p for p in _trainable(optimizer) if self.zeros.get(id(p), -1) >= _LOOKS]


def _trainable(optimizer: Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
