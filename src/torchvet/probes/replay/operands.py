"""What an operand held, and whether an operator would have given finite results in another dtype."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from torchvet.probes.base.kit import tensors_within
from torchvet.probes.internals.finite import is_finite, numeric
from torchvet.recording.records.nonfinite import Operand

_MOST_ROWS = 16
_PLAIN = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def outline(tensor: torch.Tensor, name: str | None = None) -> Operand:
    """A tensor without its values."""
    dtype, shape = _kind(tensor)
    return Operand(dtype=dtype, shape=shape, name=name)


def _kind(tensor: torch.Tensor) -> tuple[str, tuple[int, ...]]:
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)


def described(tensor: torch.Tensor, name: str | None = None) -> Operand:
    """A tensor in figures. Costs a few passes over it."""
    dtype, shape = _kind(tensor)
    whole = tensor.layout is torch.strided and not (tensor.is_floating_point() or tensor.is_complex())
    if not numeric(tensor) and not (whole and tensor.numel() and tensor.device.type != "meta"):
        return outline(tensor, name)
    values = tensor.detach()
    # `view_as_real` refuses a lazily conjugated tensor.
    values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
    # Counts and extremes are exact in double for every dtype below it.
    wide = values.double()
    finite = torch.isfinite(wide)
    sizes = wide[finite].abs()
    positive = sizes[sizes > 0]
    largest = float(sizes.max()) if sizes.numel() else 0.0
    smallest = float(positive.min()) if positive.numel() else 0.0
    found = Operand(dtype=dtype, shape=shape, name=name, largest=largest, smallest=smallest)
    zeros, negatives = int((wide == 0).sum()), int((wide < 0).sum())
    nans, infinities = int(torch.isnan(wide).sum()), int(torch.isinf(wide).sum())
    return msgspec.structs.replace(found, zeros=zeros, negatives=negatives, nans=nans, infinities=infinities)


def rows_of(tensor: torch.Tensor) -> list[int]:
    """Indices along the first dimension at which something is not finite, the first few."""
    if tensor.dim() == 0 or not numeric(tensor):
        return []
    bad = ~torch.isfinite(tensor.detach()).reshape(tensor.shape[0], -1).all(dim=1)
    return [int(i) for i in bad.nonzero()[:_MOST_ROWS, 0]]


def columns_of(tensor: torch.Tensor) -> list[int]:
    """Indices along the last dimension that are not finite in any row, where all others are in every row."""
    if tensor.dim() < 2 or not numeric(tensor):
        return []
    bad = ~torch.isfinite(tensor.detach()).reshape(-1, tensor.shape[-1])
    ever, always = bad.any(dim=0), bad.all(dim=0)
    # All columns bad is no column's fault, and a column that is bad in some rows is a matter of rows.
    if not torch.equal(ever, always) or bool(always.all()):
        return []
    return [int(i) for i in always.nonzero()[:_MOST_ROWS, 0]]


def first_bad(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The index of the first element that is not finite."""
    found = (~torch.isfinite(tensor.detach())).nonzero()
    return tuple(int(i) for i in found[0]) if len(found) else None


def value_at(tensor: torch.Tensor, index: tuple[int, ...], shape: torch.Size) -> float | None:
    """A real operand's element that belongs to an element of a result of this shape."""
    if tensor.layout is not torch.strided or tensor.is_complex() or tensor.device.type == "meta":
        return None
    try:
        # Operands of a pointwise operator are broadcast to its result.
        value = float(tensor.detach().expand(shape)[index])
    except RuntimeError:  # its shape is another
        return None
    # JSON has no NaN.
    return value if math.isfinite(value) else None


def survives(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, bool]:
    """For each dtype whether the operator on the same operands, cast, gives finite results; {} where it cannot be
    told (random operators, operands that are no tensors)."""
    # A second draw would be of other numbers, and would move the program's generator.
    if torch.Tag.nondeterministic_seeded in function.tags:
        return {}
    found: dict[str, bool] = {}
    for dtype in _PLAIN:
        try:
            result = function(*_cast(args, dtype), **_cast(kwargs, dtype))
        except Exception:  # no kernel for it, or it refuses mixed operands
            continue
        found[str(dtype).removeprefix("torch.")] = all(is_finite(t) for t in tensors_within(result))
    return found


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        # Copies, also where the dtype is the same: the operator may write.
        return value.detach().to(dtype, copy=True) if value.dtype in _PLAIN else value
    if isinstance(value, torch.dtype):
        return dtype if value in _PLAIN else value
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(v, dtype) for v in value)
    if isinstance(value, dict):
        return {k: _cast(v, dtype) for k, v in value.items()}
    return value


Namer = Callable[[torch.Tensor], "str | None"]
