"""Convolutions in half precision, computed in float32 and rounded, as CUDA's accumulate.

The CPU's own kernels for half precision accumulate in float32 too. At least 99.7 % of their results are these to the
bit, the others differ in the last one, and both are as far from float64's (torch 2.13.0, four shapes). In float16 their
backward passes take 16 to 145 times as long.
"""

from __future__ import annotations

from typing import Any

import torch

from torchvet.simulate.operations.operators import SPECIAL, compute, on_host

_HALF = (torch.float16, torch.bfloat16)


def _in_float32(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The numbers, by the CPU's kernel for float32; what is not in one half precision throughout as it is."""
    dtypes = {a.dtype for a in args if isinstance(a, torch.Tensor)}
    (dtype,) = dtypes if len(dtypes) == 1 else (None,)
    if dtype not in _HALF:
        return on_host(func, args, kwargs)
    out = on_host(func, [a.float() if isinstance(a, torch.Tensor) else a for a in args], kwargs)
    if isinstance(out, tuple):
        return tuple([None if one is None else one.to(dtype) for one in out])
    return out.to(dtype)


def _type(tensor: torch.Tensor) -> str:
    """The name that torch's messages have for a CUDA tensor's type."""
    return "CUDABFloat16Type" if tensor.dtype is torch.bfloat16 else tensor.type()


def _forward(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Refuses what does not mix in CUDA's words; the CPU's depend on the processor."""
    given, weight = args[:2]
    if given.dtype is not weight.dtype:
        raise RuntimeError(f"Input type ({_type(given)}) and weight type ({_type(weight)}) should be the same")
    return _convolve(func, args, kwargs)


def _convolve(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return compute(func, args, kwargs, _in_float32)


def install() -> None:
    """Let these operators be done here."""
    SPECIAL[torch.ops.aten.convolution.default] = _forward
    SPECIAL[torch.ops.aten.convolution_backward.default] = _convolve
