"""Looks within the forward of custom autograd Functions under autocast: does a sum overflow in half precision there?"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from types import FrameType
from typing import Any

import torch

from torchvet.probes.base.ledger import locate, place_of_line
from torchvet.probes.numerics.nonfinite_search import readable
from torchvet.probes.objects.variables import frame_locals
from torchvet.probes.precision.autocast_regions import Regions
from torchvet.recording.records.autocast import FunctionOverflow
from torchvet.recording.records.base import Place, Record

_aten = torch.ops.aten
_SQUARES = frozenset((_aten.mul.Tensor, _aten.pow.Tensor_Scalar, _aten.square.default))
"""An element of theirs that overflows may be meant (what saturates does no harm); a sum over it is lost."""
_SUMS = frozenset((
    _aten.sum.default, _aten.sum.dim_IntList, _aten.mean.default, _aten.mean.dim, _aten.cumsum.default,
    _aten.linalg_vector_norm.default, _aten.norm.Scalar, _aten.norm.ScalarOpt_dim, _aten.mm.default, _aten.bmm.default,
    _aten.addmm.default, _aten.dot.default, _aten.mv.default,
))  # fmt: skip
_COPY = _aten._to_copy.default
_DEEPEST = 48
"""Frames between an operator and the call of a Function that are looked through."""
_APPLY = getattr(getattr(torch.autograd.Function.apply, "__func__", None), "__code__", None)
"""What calls a Function's forward. None where that has no frame: torch 2.15 and newer call it from C++."""


class FunctionProbe:
    """One for the session; told of the operators of forward passes in sampled steps."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._overflown: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        """Storages of squares that are infinite and were not before."""
        self._found: dict[tuple[Place, str], FunctionOverflow] = {}

    def wants(self, func: Any, out: Any) -> bool:
        """Whether an operator is one to look at."""
        if func in _SQUARES:
            return out.dtype is torch.float16 and readable(out)
        if func is _COPY:
            return bool(self._overflown)
        return func in _SUMS and (out.dtype is torch.float16 or bool(self._overflown)) and readable(out)

    def forward(self, func: Any, args: Any, out: torch.Tensor) -> None:
        """Such an operator ran in a forward pass."""
        if self._regions.active(out.device.type) is None:
            return
        if func is _COPY:
            # What CUDA's autocast does before a sum, and `float()` after a square.
            if self._overflowed(args[0]):
                self._note(out)
            return
        name = _function(sys._getframe(1))
        if name is None:
            return
        infinite = bool(torch.isinf(out).any())
        if func in _SQUARES:
            if infinite and all(map(self._is_sound, args)):
                self._note(out)
            return
        user, inner = locate(sys._getframe(1))
        place, squares = place_of_line(user or inner), any(map(self._overflowed, args))
        if place is not None and (squares or out.dtype is torch.float16):
            overflown = infinite and (squares or all(map(self._is_sound, args)))
            self._count(place, name, func, out, overflown)

    def records(self) -> Iterable[Record]:
        """The running totals of those that overflowed."""
        return [record for record in self._found.values() if record.overflowed]

    def _count(self, place: Place, name: str, func: Any, out: torch.Tensor, overflown: bool) -> None:
        key = place, str(func)
        if key not in self._found:
            operator = str(func).removeprefix("aten.").partition(".")[0]
            self._found[key] = FunctionOverflow(place=place, name=name, operator=operator)
        record = self._found[key]
        record.calls += 1
        record.overflowed += overflown
        if overflown:
            record.elements += out.numel()
            record.infinite += int(torch.isinf(out).sum())

    def _note(self, out: torch.Tensor) -> None:
        storage = out.untyped_storage()
        self._overflown = {k: r for k, r in self._overflown.items() if r() is not None}
        self._overflown[storage._cdata] = weakref.ref(storage)

    @staticmethod
    def _is_sound(value: Any) -> bool:
        """Whether an operand is finite; what is no floating-point tensor is."""
        return not isinstance(value, torch.Tensor) or not readable(value) or bool(value.isfinite().all())

    def _overflowed(self, value: Any) -> bool:
        """Whether an operand is a square that overflowed."""
        if not isinstance(value, torch.Tensor) or not readable(value):
            return False
        storage = value.untyped_storage()
        known = self._overflown.get(storage._cdata)
        return known is not None and known() is storage


def _function(frame: FrameType | None) -> str | None:
    """The Function whose forward runs, unless `custom_fwd` (or what else of torch's decorates it) is around it."""
    inside = ""
    for _ in range(_DEEPEST):
        if frame is None or inside == "decorate_fwd":
            return None
        if frame.f_code is _APPLY:
            return str(frame.f_locals["cls"].__name__) if inside == "forward" else None
        if _APPLY is None and frame.f_code.co_name == "forward":
            named = _called_from_c(frame)
            if named is not None:
                return named
        inside = frame.f_code.co_name
        frame = frame.f_back
    return None


def _called_from_c(frame: FrameType) -> str | None:
    """The Function whose forward this frame is, by its `ctx`; None where it has none, or `custom_fwd` is around it."""
    code, above = frame.f_code, frame.f_back
    if not code.co_argcount or (above is not None and above.f_code.co_name == "decorate_fwd"):
        return None
    ctx = (frame_locals(frame) or {}).get(code.co_varnames[0])
    if not isinstance(ctx, torch.autograd.function.BackwardCFunction):
        return None
    return str(getattr(type(ctx), "_forward_cls", type(ctx)).__name__)
