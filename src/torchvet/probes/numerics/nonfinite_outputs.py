"""Watches evaluation, which has neither a loss for backward nor gradients: outputs that are NaN, and numbers taken."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Literal, NamedTuple

import torch

from torchvet.probes.base.callers import whereabouts
from torchvet.probes.base.kit import Place, frames
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.internals.finite import is_finite
from torchvet.probes.objects.containers import tensors_in
from torchvet.probes.replay.plans import Spot, spots

_MOST_IN_INFERENCE_MODE = 64
"""Passes looked at there, where only modules can be heard."""


class Taken(NamedTuple):
    """What waits for a look: an output that is NaN and a number that was taken of it, an output of which nothing more
    can be heard ("output"), or a number of outputs that are finite. `spots` are where that was, `place` is its line."""

    kind: Literal["both", "output", "number"]
    spots: tuple[Spot, ...]
    place: Place | None


class OutputWatch:
    """What root modules give without gradients in sampled steps, and what the program computes of it.

    A NaN among it is no fault by itself: rows of padding may be skipped afterwards. It is one where a number that the
    program takes out of torch in the same step, for its metrics, is NaN as well. Where the output was finite, such a
    number may be a rate of nothing: only a replay can tell.
    """

    def __init__(self, known: KnownMemory) -> None:
        self._known = known
        # Numbers of training are the business of losses and gradients.
        self._passed = False
        """Whether such a pass has ended in this step."""
        self._bad = False
        self.taken: Taken | None = None
        """What waits for a look."""
        self.passes = 0
        """Passes looked at."""
        self.ruined = 0
        """Of those: which gave nothing but NaN."""
        self.numbers = 0
        self._nans: Counter[tuple[Spot, ...]] = Counter()
        """NaN numbers of finite outputs, by where they were taken."""
        self._idle: set[tuple[Spot, ...]] = set()
        """Where they are no matter of the parameters."""
        self._inferred = 0

    @property
    def unheard(self) -> bool:
        """Whether passes ran where no operator can be heard."""
        return self._inferred > 0

    @property
    def nan_numbers(self) -> int:
        """How many numbers were NaN that may be a matter of the parameters."""
        return sum(times for where, times in self._nans.items() if where not in self._idle)

    def wants_modules(self) -> bool:
        """Whether passes are to be heard outside of sampled steps: no operator can be in inference mode."""
        return self._inferred < _MOST_IN_INFERENCE_MODE and torch.is_inference_mode_enabled()

    def ended(self, output: Any) -> None:
        """A root module's forward pass has ended."""
        # A pass with gradients goes backward, and is seen there.
        if torch.is_grad_enabled():
            return
        self._passed = True
        self.passes += 1
        given = tensors_in(output, 2)
        # Infinities alone are often masks.
        found = [t for t in given if not is_finite(t) and bool(torch.isnan(t).any())]
        # With weights that are lost already, the outputs say nothing new.
        self._bad = bool(found) and self._is_sound()
        self.ruined += self._bad and all(bool(torch.isnan(t).all()) for t in given if t.is_floating_point())
        if torch.is_inference_mode_enabled():
            # No operator is heard there, so no number can confirm it: the output itself is looked into.
            self._inferred += 1
            if self._bad and self._inferred <= _MOST_IN_INFERENCE_MODE:
                self.taken = Taken("output", spots(whereabouts(3)), frames.user_place(3))

    def number_taken(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        """`item()` and the like gave a number."""
        if not self._passed or not isinstance(out, float) or args[0].requires_grad:
            return
        self.numbers += 1
        # Cheapest first: the weights are asked only where a number is NaN.
        if not math.isnan(out) or not (self._bad or self._is_sound()):
            return
        where = spots(whereabouts(3))
        if self._bad:
            # One look for each bad output.
            self._bad, self.taken = False, Taken("both", where, None)
            return
        self._nans[where] += 1
        if self.taken is None and where not in self._idle:
            self.taken = Taken("number", where, frames.user_place(3))

    def explained(self, taken: Taken, idle: bool) -> None:
        """A replay has looked; `idle` if it showed that the number is no matter of the parameters."""
        if idle:
            self._idle.add(taken.spots)

    def look_due(self) -> Taken | None:
        """What was taken since the last look, and waits for one."""
        taken, self.taken = self.taken, None
        return taken

    def step_ends(self) -> None:
        """The next step's numbers are of its own passes."""
        self._bad = self._passed = False

    def _is_sound(self) -> bool:
        return all(is_finite(p) for p in self._known.parameters())
