"""Which dimension of a tensor is that of the samples, and which one of what an operator makes of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import names

_REDUCING = names(
    "sum mean amax amin max min prod median mode logsumexp var std var_mean std_mean any all argmax argmin "
    "linalg_vector_norm norm nansum"
)
_BY_NUMBER = names("embedding index index_select gather")
"""What has the dimensions of an index first."""
_PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
"""Products of matrices: where the first factor stands."""


class Axis(NamedTuple):
    """A dimension: the samples are its outer part or, as after a fold of what stood in front of them, its inner one."""

    dim: int
    inner: bool = False


def samples_axis(tensor: torch.Tensor, size: int, step: int) -> Axis | None:
    """The dimension whose numbers are as far apart as the samples of the storage."""
    folded = None
    for dim, (length, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if not stride or length % size:
            continue
        if stride * (length // size) == step:
            return Axis(dim)
        if stride == step:
            folded = Axis(dim, inner=True)
    return folded


def axis_behind(name: str, args: Any, given: torch.Tensor, made: torch.Tensor, axis: Axis) -> Axis | None:
    """Where what an operator made has the samples of one that it was given; None where it has none, or has them in the
    same storage."""
    if made.untyped_storage()._cdata == given.untyped_storage()._cdata:
        return None
    dim = axis.dim
    if name == "stack":
        at = args[1] % made.dim() if len(args) > 1 else 0
        dim += at <= dim
    elif name in _REDUCING:
        dims = _dims(args, given.dim())
        if dim in dims:
            return None
        dim -= sum(one < dim for one in dims) if made.dim() < given.dim() else 0
    elif name in _PRODUCTS:
        first = args[_PRODUCTS[name]] is given
        if dim == given.dim() - (1 if first else 2):
            return None
    elif name not in _BY_NUMBER:
        # What is spread over more dimensions gets them in front.
        dim += max(0, made.dim() - given.dim())
    return Axis(dim, axis.inner) if dim < made.dim() else None


def _dims(args: Any, most: int) -> set[int]:
    """The dimensions that a reduction goes over: all of them where none is named."""
    named = args[1] if len(args) > 1 else None
    found = [named] if isinstance(named, int) else named
    if not isinstance(found, (list, tuple)) or not found:
        return set(range(most))
    return {one % most for one in found if isinstance(one, int)}
