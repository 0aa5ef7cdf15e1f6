"""Watches for constants that are 0 in half precision, and for positions whose numbers are no longer distinct."""

from __future__ import annotations

from typing import Any

import torch

from torchvet.probes.base.kit import ByStorage, Host, Place, SiteWatcher, bare_name, overloads
from torchvet.probes.numerics import half
from torchvet.recording.records.numeric import HalfPositions, VanishedConstant

_PROTECTING = overloads("add.Tensor add_.Tensor clamp_min clamp_min_ clamp clamp_ maximum")
_DIVIDING = overloads("div.Tensor div_.Tensor")
_SINGULAR = overloads("reciprocal log log2 log10 rsqrt sqrt log_ rsqrt_ reciprocal_")
# Half the smallest subnormal (2^-24): rounding to nearest even makes it 0.
_LARGEST_ZERO = 2.0**-25
"""The largest number that float16 rounds to 0."""
_RANGES = overloads("arange arange.start arange.start_step")
_EXACT, _MOST = 128, 1 << 20
"""Ranges that end below are distinct in bfloat16, if they count by whole numbers; longer ones are too long to look at.
"""


class VanishedConstants(SiteWatcher[Place, VanishedConstant]):
    """Constants that are 0 in float16."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._pending: ByStorage[tuple[Place, str, float]] = ByStorage()
        """What such a constant was added to: where, by which operator, and the constant."""

    def install(self) -> None:
        """Hear small constants, and what must not be 0."""
        self.host.hear(_PROTECTING, self._protecting)
        self.host.hear((*_DIVIDING, *_SINGULAR), self._used)

    def _protecting(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if out.dtype is not torch.float16 or len(args) < 2 or half.in_backward():
            return
        constant = _constant(args[1])
        if not 0 < abs(constant) <= _LARGEST_ZERO:
            return
        place = self.host.line()
        if place is not None:
            # Entries of dead storages would pile up: such a constant is added in every step.
            self._pending.sweep()
            self._pending.put(out, (place, _name(func), constant))

    def _used(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        """Was something that must not be 0 protected by a constant that is?"""
        # A divisor stands second; the others have one operand.
        operand = args[1] if func in _DIVIDING else args[0]
        pending = self._pending.get(operand) if self._pending else None
        if pending is None or half.in_backward():
            return
        place, operator, constant = pending
        before = self.sites.get(place)
        record = VanishedConstant(place=place, operator=operator, user=_name(func), dtype="float16", constant=constant)
        record.calls = 1 + (before.calls if before else 0)
        record.elements = operand.numel() + (before.elements if before else 0)
        record.zeros = operand.numel() - int(operand.count_nonzero()) + (before.zeros if before else 0)
        self.sites[place] = record


class RoundedPositions(SiteWatcher[Place, HalfPositions]):
    """Positions in half precision."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._ranges: ByStorage[bool] = ByStorage()

    def install(self) -> None:
        """Hear ranges and conversions."""
        self.host.hear(_RANGES, self._made)
        self.host.hear([torch.ops.aten._to_copy.default], self._converted)

    def _made(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        # By the arguments, which are numbers: a range may be short and begin far out.
        ends = [abs(a) for a in args if isinstance(a, (int, float))]
        if out.numel() < 2 or max(*ends, out.numel()) <= _EXACT:
            return
        if out.dtype in half.HALF:
            self._measure(out, converted=False)
            return
        self._ranges.sweep()
        self._ranges.put(out, True)

    def _converted(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if not self._ranges or out.dtype not in half.HALF or args[0].dtype in half.HALF:
            return
        if self._ranges.get(args[0]):
            self._measure(out, converted=True)

    def _measure(self, range_: torch.Tensor, converted: bool) -> None:
        place = self.host.line()
        if place is None or range_.numel() > _MOST:
            return
        before = self.sites.get(place)
        # A longer range at the same line only is news: `unique` sorts the whole range.
        if before is not None and before.length >= range_.numel():
            before.calls += 1
            return
        record = HalfPositions(place=place, dtype=half.NAMES[range_.dtype], length=range_.numel(), converted=converted)
        record.distinct, record.largest = len(torch.unique(range_)), float(range_.abs().max())
        record.calls = 1 + (before.calls if before else 0)
        self.sites[place] = record


def _constant(value: Any) -> float:
    """A number, or one in a tensor without dimensions; 0 for anything else."""
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, torch.Tensor) and value.dim() == 0 and value.dtype.is_floating_point:
        return float(value)
    return 0.0


def _name(func: Any) -> str:
    return bare_name(func).rstrip("_")
