"""Norms as CUDA keeps them: RMS norm is one operator there, and what is known of each row has 32 bits.

The CPU composes RMS norm, and its graph holds more than the kernel does. The numbers and gradients are the CPU's. What
is not dense in order is copied while a kernel runs (`cuda/layer_norm_kernel.cu`).
"""

from __future__ import annotations

from typing import Any

import torch

from torchvet.simulate.allocation.temporaries import copy_of, held
from torchvet.simulate.operations import accumulating
from torchvet.simulate.operations.operators import SPECIAL, compute, on_host, run, without_arithmetic
from torchvet.simulate.tensors import numbers_of, wrap

_aten = torch.ops.aten
_HALVES = (torch.float16, torch.bfloat16)


def rms_norm(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """`_fused_rms_norm`: the result, and each row's factor, which is all that the backward pass needs beside."""
    out, factors = on_host(func, [numbers_of(a) for a in args], kwargs)
    found = wrap(out, args[0].ordinal), wrap(factors, args[0].ordinal)
    held(args[0].ordinal, [copy_of(args[0])])
    return found


def rms_norm_backward(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The formulas of `derivatives.yaml` for what the CPU composes, in the order in which autograd asks for them."""
    by_out, given, _, factors, weight, wanted = args
    gradient, numbers, each, scale = (numbers_of(t) for t in (by_out, given, factors, weight))
    wide = each.dtype
    gradient, numbers = gradient.to(wide), numbers.to(wide)
    by_scale = None
    if scale is not None:
        if wanted[1]:
            by_scale = (gradient * (numbers * each)).sum_to_size(scale.shape).to(scale.dtype)
        gradient = gradient * scale
    by_each = (gradient * numbers).sum_to_size(each.shape)
    by_mean = -0.5 * by_each * each.pow(3)
    by_squares = by_mean.expand(numbers.shape) / (numbers.numel() // max(1, each.numel()))
    parts = gradient * each, by_squares * (2 * numbers.pow(1))
    by_given = (parts[0] + parts[1]).to(given.dtype)
    if given.dtype is wide and not without_arithmetic():
        # The CPU adds its two parts to a gradient one after the other: rounding differs by the order.
        accumulating.is_sum_of(by_given, *parts)
    index = given.ordinal
    found = (
        wrap(by_given, index) if wanted[0] else None,
        None if by_scale is None else wrap(by_scale, index),
    )
    held(index, [copy_of(by_out), copy_of(given)])
    return found


def _statistics(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Means and deviations of what has 16 bits throughout: CUDA's kernel gives them in 32."""
    out, *known = on_host(func, args, kwargs)
    return out, *(t.float() if t.dtype in _HALVES else t for t in known)


def layer_norm(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`native_layer_norm`."""
    found = compute(func, args, kwargs, _statistics)
    held(args[0].ordinal, [copy_of(args[0])])
    return found


def _from_statistics(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What was widened is narrowed again, which loses nothing, where the CPU's kernel wants it as it gave it."""
    gradient, given, shape, *known, weight, bias, wanted = args
    if given.dtype in _HALVES and (weight is None or weight.dtype is given.dtype):
        # See `_statistics`, which widened them.
        known = [t.to(given.dtype) for t in known]
    return on_host(func, [gradient, given, shape, *known, weight, bias, wanted], kwargs)


def layer_norm_backward(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`native_layer_norm_backward`."""
    found = compute(func, args, kwargs, _from_statistics)
    held(args[0].ordinal, [copy_of(args[0]), copy_of(args[1])])
    return found


def _by_its_kernel(*args: Any, **kwargs: Any) -> Any:
    return run(_aten._fused_rms_norm.default, args, kwargs)


def install(library: torch.library.Library) -> None:
    """Let these operators be done here."""
    # With a kernel of the backend autograd takes it for one operator.
    library.impl("_fused_rms_norm", _by_its_kernel, "PrivateUse1")  # type: ignore[no-untyped-call]
    SPECIAL[_aten._fused_rms_norm.default] = rms_norm
    SPECIAL[_aten._fused_rms_norm_backward.default] = rms_norm_backward
    SPECIAL[_aten.native_layer_norm.default] = layer_norm
    SPECIAL[_aten.native_layer_norm_backward.default] = layer_norm_backward
