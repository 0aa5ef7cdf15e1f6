"""Watches losses that the program itself asks for NaN, and then leaves out: no backward pass ever sees them."""

from __future__ import annotations

import math
from types import CodeType
from typing import Any

import torch

from torchvet.probes.base.callers import whereabouts
from torchvet.probes.replay.plans import Spot, spots

_aten = torch.ops.aten
ASKING = (_aten.isnan.default, _aten.eq.Tensor, _aten._local_scalar_dense.default)
"""What asks: `isnan`; the comparison with itself that `isfinite` makes; and what takes the number out of torch."""


class SkipWatch:
    """A loss that was NaN when it was asked for. It is left out where the next batch comes before any backward pass."""

    def __init__(self) -> None:
        self._asked: tuple[Spot, ...] | None = None
        self._functions: set[CodeType] = set()
        """Those in which losses were left out."""
        self._used = False
        self.batches = 0
        """Batches without a backward pass in such a function, once that was seen in a sampled step."""

    @property
    def waits(self) -> bool:
        """Whether the program has asked for a loss that was NaN, and no backward pass has begun since."""
        return self._asked is not None

    def asked(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        """An operator of `ASKING` ran."""
        value = args[0]
        # `x == x` is false for NaN alone; any other comparison asks something else.
        if func is _aten.eq.Tensor and args[1] is not value:
            return
        # Only what could go backward is a loss; metrics are asked for NaN as well.
        if value.numel() == 1 and value.requires_grad and value.is_floating_point() and math.isnan(value.item()):
            self._asked = spots(whereabouts(3))

    def used(self) -> None:
        """A backward pass begins: whatever is wrong shows there."""
        self._asked, self._used = None, True

    def left_out(self) -> tuple[Spot, ...] | None:
        """Where the program asked, if no backward pass has begun since."""
        asked, self._asked = self._asked, None
        if asked is not None:
            self._functions.update(spot.code for spot in asked)
        return asked

    def batch_got(self) -> None:
        """The next batch is here."""
        # Later batches are counted outside of sampled steps too, by the function: operators are not heard
        # there.
        if self._functions and not self._used and torch.is_grad_enabled():
            self.batches += any(code in self._functions for _, code, _ in whereabouts(3)[:1])
        self._used = False
