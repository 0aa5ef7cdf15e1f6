"""Operators in half precision that are computed in float32 and rounded, as CUDA's kernels do.

For some the CPU has no kernel in half precision. Its kernels for grid sampling place points in half precision, and
are off by a tenth. Those for convolutions accumulate in float32 too. At least 99.7 % of their results are these to the
bit, the others differ in the last one, and both are as far from float64's (torch 2.13.0, four shapes). In float16 their
backward passes take 16 to 145 times as long.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from torchvet.simulate.operations.operators import SPECIAL, compute, on_host

_aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
_SAMPLING = ("grid_sampler_2d", "grid_sampler_3d", "avg_pool3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
_MARGINS = ("multi_margin_loss", "multilabel_margin_loss_forward", "multilabel_margin_loss_backward")
_ROUNDED = (*_SAMPLING, *(f"{name}_backward" for name in _SAMPLING), *_MARGINS, "multi_margin_loss_backward")


def _in_float32(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The numbers, by the CPU's kernel for float32; what is not in one half precision throughout as it is."""
    dtypes = {a.dtype for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()}
    # Mixed dtypes go to the CPU's kernel, which refuses them.
    (dtype,) = dtypes if len(dtypes) == 1 else (None,)
    if dtype not in _HALF:
        return on_host(func, args, kwargs)
    wider = [a.float() if isinstance(a, torch.Tensor) and a.dtype is dtype else a for a in args]
    out = on_host(func, wider, kwargs)
    return tuple([_narrow(one, dtype) for one in out]) if isinstance(out, tuple) else _narrow(out, dtype)


def _batch_norm(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """With weights in half precision as well the CPU rounds its statistics, and so some results in the last place.
    CUDA's kernel keeps them in float32, for the backward pass too, and rounds once."""
    dtype = args[0].dtype
    if dtype not in _HALF or any(isinstance(a, torch.Tensor) and a.dtype is not dtype for a in args[1:5]):
        return on_host(func, args, kwargs)
    wider = [a.float() if isinstance(a, torch.Tensor) else a for a in args]
    out, mean, deviation = on_host(func, wider, kwargs)
    for running, new in zip(args[3:5], wider[3:5], strict=True):
        if running is not None:
            # The float32 copies were updated: the program's own statistics must be.
            running.copy_(new)
    return _narrow(out, dtype), mean, deviation


def _batch_norm_backward(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """With the statistics of the forward pass in float32."""
    dtype = args[0].dtype
    if dtype not in _HALF or any(isinstance(a, torch.Tensor) and a.dtype is not dtype for a in args[1:5]):
        return on_host(func, args, kwargs)
    out = on_host(func, [a.float() if isinstance(a, torch.Tensor) else a for a in args], kwargs)
    return tuple([_narrow(one, dtype) for one in out])


def _narrow(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if value is not None and value.dtype is torch.float32 else value


def _type(tensor: torch.Tensor) -> str:
    """The name that torch's messages have for a CUDA tensor's type."""
    return "CUDABFloat16Type" if tensor.dtype is torch.bfloat16 else tensor.type()


def _forward(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Refuses what does not mix in CUDA's words; the CPU's depend on the processor."""
    given, weight = args[:2]
    if given.dtype is not weight.dtype:
        raise RuntimeError(f"Input type ({_type(given)}) and weight type ({_type(weight)}) should be the same")
    return _rounded(func, args, kwargs)


def _rounded(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return compute(func, args, kwargs, _in_float32)


def install() -> None:
    """Let these operators be done here."""
    SPECIAL[_aten.convolution.default] = _forward
    SPECIAL[_aten.convolution_backward.default] = _rounded
    for name, numbers in (("native_batch_norm", _batch_norm), ("native_batch_norm_backward", _batch_norm_backward)):
        SPECIAL[getattr(_aten, name).default] = partial(compute, numbers=numbers)
    for name in _ROUNDED:
        SPECIAL[getattr(_aten, name).default] = _rounded
