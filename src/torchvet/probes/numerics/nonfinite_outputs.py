"""Watches evaluation, which has neither a loss for backward nor gradients: outputs that are NaN, and numbers taken."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchvet.probes.base.callers import whereabouts
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.internals.finite import is_finite
from torchvet.probes.objects.containers import tensors_in
from torchvet.probes.replay.plans import Spot, spots


class OutputWatch:
    """What root modules give without gradients in sampled steps.

    A NaN among it is no fault by itself: rows of padding may be skipped afterwards. It is one where a number that the
    program takes out of torch in the same step, for its metrics, is NaN as well.
    """

    def __init__(self, known: KnownMemory) -> None:
        self._known = known
        self._bad = False
        self._taken: tuple[Spot, ...] | None = None
        self.passes = 0
        """Passes looked at."""
        self.ruined = 0
        """Of those: which gave nothing but NaN."""

    def ended(self, output: Any) -> None:
        """A root module's forward pass has ended."""
        if torch.is_grad_enabled():
            return
        self.passes += 1
        given = tensors_in(output, 2)
        found = [t for t in given if not is_finite(t) and bool(torch.isnan(t).any())]
        # With weights that are lost already, the outputs say nothing new.
        self._bad = bool(found) and all(is_finite(p) for p in self._known.parameters())
        self.ruined += self._bad and all(bool(torch.isnan(t).all()) for t in given if t.is_floating_point())

    def number_taken(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        """`item()` and the like gave a number."""
        if self._bad and isinstance(out, float) and math.isnan(out) and not args[0].requires_grad:
            self._bad, self._taken = False, spots(whereabouts(3))

    def step_ends(self) -> tuple[Spot, ...] | None:
        """Where such a number was taken in the step that ends, if one was."""
        taken, self._taken, self._bad = self._taken, None, False
        return taken
