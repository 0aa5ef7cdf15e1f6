"""Watches for constants that are 0 in half precision, and for positions whose numbers are no longer distinct."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.watcher import Host, Watcher
from torchvet.probes.numerics import half
from torchvet.recording.records.base import Place, Record
from torchvet.recording.records.numeric import HalfPositions, VanishedConstant

_aten = torch.ops.aten
_PROTECTING = (
    _aten.add.Tensor, _aten.add_.Tensor, _aten.clamp_min.default, _aten.clamp_min_.default, _aten.clamp.default,
    _aten.clamp_.default, _aten.maximum.default,
)  # fmt: skip
_DIVIDING = (_aten.div.Tensor, _aten.div_.Tensor)
_SINGULAR = (
    _aten.reciprocal.default, _aten.log.default, _aten.log2.default, _aten.log10.default, _aten.rsqrt.default,
    _aten.sqrt.default, _aten.log_.default, _aten.rsqrt_.default, _aten.reciprocal_.default,
)  # fmt: skip
_LARGEST_ZERO = 2.0**-25
"""The largest number that float16 rounds to 0."""
_RANGES = (_aten.arange.default, _aten.arange.start, _aten.arange.start_step)
_EXACT, _MOST = 128, 1 << 20
"""Ranges that end below are distinct in bfloat16, if they count by whole numbers; longer ones are too long to look at.
"""
_Storage = weakref.ref[torch.UntypedStorage]


class VanishedConstants(Watcher):
    """Constants that are 0 in float16."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._pending: dict[int, tuple[_Storage, Place, str, float]] = {}
        self._found: dict[Place, VanishedConstant] = {}

    def install(self) -> None:
        """Be told of small constants, and of what must not be 0."""
        self.host.hear(_PROTECTING, self._protecting)
        self.host.hear(_DIVIDING, self._dividing)
        self.host.hear(_SINGULAR, self._singular)

    def _protecting(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if out.dtype is not torch.float16 or len(args) < 2 or half.in_backward():
            return
        constant = _constant(args[1])
        if not 0 < abs(constant) <= _LARGEST_ZERO:
            return
        place = self.host.line()
        if place is not None:
            storage = out.untyped_storage()
            self._pending = {k: v for k, v in self._pending.items() if v[0]() is not None}
            self._pending[storage._cdata] = (weakref.ref(storage), place, _name(func), constant)

    def _dividing(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if self._pending and isinstance(args[1], torch.Tensor):
            self._used(func, args[1])

    def _singular(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if self._pending:
            self._used(func, args[0])

    def _used(self, func: Any, operand: torch.Tensor) -> None:
        """Something that must not be 0 was protected by a constant that is."""
        storage = operand.untyped_storage()
        pending = self._pending.get(storage._cdata)
        if pending is None or pending[0]() is not storage or half.in_backward():
            return
        _, place, operator, constant = pending
        before = self._found.get(place)
        self._found[place] = VanishedConstant(
            place=place, operator=operator, user=_name(func), dtype="float16", constant=constant,
            calls=1 + (before.calls if before else 0),
            elements=operand.numel() + (before.elements if before else 0),
            zeros=operand.numel() - int(operand.count_nonzero()) + (before.zeros if before else 0),
        )  # fmt: skip

    def totals(self, tick: int) -> Iterable[Record]:
        """Each constant, by its line."""
        return list(self._found.values())


class RoundedPositions(Watcher):
    """Positions in half precision."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._ranges: dict[int, _Storage] = {}
        self._found: dict[Place, HalfPositions] = {}

    def install(self) -> None:
        """Be told of ranges and of conversions."""
        self.host.hear(_RANGES, self._made)
        self.host.hear([_aten._to_copy.default], self._converted)

    def _made(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        # By the arguments, which are numbers: a range may be short and begin far out.
        ends = [abs(a) for a in args if isinstance(a, (int, float))]
        if out.numel() < 2 or max(*ends, out.numel()) <= _EXACT:
            return
        if out.dtype in half.HALF:
            self._measure(out, converted=False)
            return
        storage = out.untyped_storage()
        self._ranges = {k: r for k, r in self._ranges.items() if r() is not None}
        self._ranges[storage._cdata] = weakref.ref(storage)

    def _converted(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if not self._ranges or out.dtype not in half.HALF or args[0].dtype in half.HALF:
            return
        storage = args[0].untyped_storage()
        known = self._ranges.get(storage._cdata)
        if known is not None and known() is storage:
            self._measure(out, converted=True)

    def _measure(self, range_: torch.Tensor, converted: bool) -> None:
        place = self.host.line()
        if place is None or range_.numel() > _MOST:
            return
        before = self._found.get(place)
        if before is not None and before.length >= range_.numel():
            before.calls += 1
            return
        self._found[place] = HalfPositions(
            place=place, dtype=half.NAMES[range_.dtype], length=range_.numel(), distinct=len(torch.unique(range_)),
            converted=converted, largest=float(range_.abs().max()), calls=1 + (before.calls if before else 0),
        )  # fmt: skip

    def totals(self, tick: int) -> Iterable[Record]:
        """Each range, by its line."""
        return list(self._found.values())


def _constant(value: Any) -> float:
    """A number, or one in a tensor without dimensions; 0 for anything else."""
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, torch.Tensor) and value.dim() == 0 and value.dtype.is_floating_point:
        return float(value)
    return 0.0


def _name(func: Any) -> str:
    return str(func).removeprefix("aten.").partition(".")[0].rstrip("_")
