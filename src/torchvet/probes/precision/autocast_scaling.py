"""A gradient scaler that is missing beside an fp16 region, with what that loses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Place, Record, frames, tap
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.precision.autocast_operators import Again, in_float32
from torchvet.probes.precision.autocast_regions import Regions
from torchvet.recording.records.autocast import UnscaledBackward

_LOOKS = 4
"""Sampled backward passes whose operators are run again in float32."""


class ScalingProbe:
    """One for the session."""

    def __init__(self, regions: Regions, known: KnownMemory) -> None:
        self._regions = regions
        self._known = known
        self._uses: dict[Place, UnscaledBackward] = {}
        self._seen = 0
        self._scaled = False
        self._noting: UnscaledBackward | None = None
        self._noted = 0
        self.scale = 0.0
        """The factor of the last loss that a scaler scaled, for a few of them; 0 where none did."""
        self._asked = 0

    def tap_scale(self, host: Host) -> Any:
        """Of `GradScaler.scale`."""

        def scaled(_: Any, scaler: Any, outputs: Any) -> None:
            self._scaled = True  # one that is switched off is another fault
            if scaler._enabled and self._asked < _LOOKS:  # asking waits for the device
                self._asked += 1
                self.scale = float(scaler._scale)

        return tap(host, "the scale of a loss", after=scaled)

    def backward_starts(self) -> None:
        """`backward` is about to run."""
        scaled, self._scaled = self._scaled, False
        # A backward without a float16 region before it has no gradients in half.
        fresh, self._seen = self._regions.half_until > self._seen, self._regions.half_until
        self._noting = None
        region = self._regions.last_half
        # A factor by hand is not told here: it saves small gradients, and the measure below shows that.
        if scaled or not fresh or region is None:
            return
        place = frames.user_place()
        if place is None:
            return
        use = self._uses.setdefault(place, UnscaledBackward(place=place, region=region.site.place, calls=0))
        use.calls += 1
        if use.looked < _LOOKS:
            self._noting, self._noted = use, 0

    @property
    def noting(self) -> bool:
        """Whether operators of the backward pass that is running are wanted."""
        return self._noting is not None

    def operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """An operator ran in a backward pass: which results are zero only for want of range?"""
        result = out[0] if isinstance(out, (tuple, list)) and out else out
        use = self._noting
        if use is None or not isinstance(result, torch.Tensor) or result.dtype is not torch.float16:
            return
        self._noted += 1
        if any(r.alias_info is not None for r in func._schema.returns):
            return  # a view, or in place: what it was given is gone
        with Again():
            exact = args[0] if func is torch.ops.aten._to_copy.default else in_float32(func, args, kwargs)
            if isinstance(exact, torch.Tensor) and exact.shape == result.shape:
                # Zeros of float32 are no loss.
                some = exact != 0
                use.elements += int(some.sum())
                use.lost += int((some & (result == 0)).sum())

    def backward_ended(self) -> None:
        """It returned: how much of the parameters' gradients is zero?"""
        use, self._noting = self._noting, None
        # No operator was heard: the step was not sampled.
        if use is None or not self._noted:
            return
        use.looked += 1
        for gradient in self._known.gradients():
            if not gradient.is_sparse:
                use.gradients += gradient.numel()
                use.zeros += gradient.numel() - int(torch.count_nonzero(gradient))

    def records(self) -> Iterable[Record]:
        """The running totals."""
        return list(self._uses.values())
