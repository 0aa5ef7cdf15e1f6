"""Looks within the forward of custom autograd Functions under autocast: does a sum overflow in half precision there?"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

import torch

from torchvet.probes.base.kit import ByStorage, Place, Record, bare_name, frames, outward, overloads
from torchvet.probes.internals.finite import readable
from torchvet.probes.objects.variables import frame_locals
from torchvet.probes.precision.autocast_regions import Regions
from torchvet.recording.records.autocast import FunctionOverflow

_SQUARES = frozenset(overloads("mul.Tensor pow.Tensor_Scalar square"))
"""An element of theirs that overflows may be meant (what saturates does no harm); a sum over it is lost."""
_SUMS = frozenset(
    overloads(
        "sum sum.dim_IntList mean mean.dim cumsum linalg_vector_norm norm.Scalar norm.ScalarOpt_dim mm bmm addmm dot mv"
    )
)
_COPY = torch.ops.aten._to_copy.default
_DEEPEST = 48
"""Frames between an operator and the call of a Function that are looked through."""
_APPLY = getattr(getattr(torch.autograd.Function.apply, "__func__", None), "__code__", None)
"""What calls a Function's forward. None where that has no frame: torch 2.15 and newer call it from C++."""


class FunctionProbe:
    """One for the session; hears the operators of forward passes in sampled steps."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._overflown: ByStorage[bool] = ByStorage()
        """Squares that are infinite and were not before."""
        self._found: dict[tuple[Place, str], FunctionOverflow] = {}

    def wants(self, func: Any, out: Any) -> bool:
        """Whether an operator is one to look at."""
        if func in _SQUARES:
            return out.dtype is torch.float16 and readable(out)
        # Copies matter only behind a square that overflowed.
        if func is _COPY:
            return bool(self._overflown)
        return func in _SUMS and (out.dtype is torch.float16 or bool(self._overflown)) and readable(out)

    def forward(self, func: Any, args: Any, out: torch.Tensor) -> None:
        """Such an operator ran in a forward pass."""
        if self._regions.active(out.device.type) is None:
            return
        # A copy is what CUDA's autocast makes before a sum, and `float()` after a square.
        # Looking through the stack costs more than all else here.
        name = _function(sys._getframe(1)) if func is not _COPY else None
        if func is _COPY and self._overflown.get(args[0]):
            self._note(out)
        elif name is not None and func in _SQUARES:
            if _overflows(out, args):
                self._note(out)
        elif name is not None:
            place, squares = frames.user_place(), any(map(self._overflown.get, args))
            if place is not None and (squares or out.dtype is torch.float16):
                overflown = bool(torch.isinf(out).any()) if squares else _overflows(out, args)
                self._count(place, name, func, out, overflown)

    def records(self) -> Iterable[Record]:
        """The running totals of those that overflowed."""
        return [record for record in self._found.values() if record.overflowed]

    def _count(self, place: Place, name: str, func: Any, out: torch.Tensor, overflown: bool) -> None:
        new = FunctionOverflow(place=place, name=name, operator=bare_name(func))
        record = self._found.setdefault((place, str(func)), new)
        record.calls += 1
        record.overflowed += overflown
        if overflown:
            record.elements += out.numel()
            record.infinite += int(torch.isinf(out).sum())

    def _note(self, out: torch.Tensor) -> None:
        self._overflown.sweep()
        self._overflown.put(out, True)


def _overflows(out: torch.Tensor, args: Any) -> bool:
    """Whether a result is infinite, and all operands are finite."""
    operands = (a for a in args if isinstance(a, torch.Tensor) and readable(a))
    return bool(torch.isinf(out).any()) and all(bool(a.isfinite().all()) for a in operands)


def _function(frame: FrameType | None) -> str | None:
    """The Function whose forward runs, unless `custom_fwd` (or what else of torch's decorates it) is around it."""
    inside = ""
    for one in itertools.islice(outward(frame), _DEEPEST):
        # The name of `custom_fwd`'s wrapper in torch: such a Function minds autocast.
        if inside == "decorate_fwd":
            return None
        # What lies directly below `apply` is the Function's own forward.
        if one.f_code is _APPLY:
            return str(one.f_locals["cls"].__name__) if inside == "forward" else None
        if _APPLY is None and one.f_code.co_name == "forward" and (named := _called_from_c(one)) is not None:
            return named
        inside = one.f_code.co_name
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
