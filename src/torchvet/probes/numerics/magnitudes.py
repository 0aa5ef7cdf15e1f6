"""How large a tensor's values are, in as few passes as it takes. Nothing here draws random numbers."""

from __future__ import annotations

import math

import torch

OVERFLOWS = 65520.0
"""The smallest magnitude that rounds to infinity in fp16 (round to nearest; the largest number is 65504)."""
# `torch.finfo(torch.float32).max` is 3.4028e38; masks are often just above this.
_ENDLESS = 3.4e38
"""Above this a value stands for infinity: `torch.finfo(x.dtype).min` as a mask follows the dtype."""
_MOST = 1 << 16
_LOWEST = 180


def measurable(tensor: torch.Tensor) -> bool:
    """Whether a tensor has real values that autocast would care for: no integers, no float64, nothing without data."""
    return (
        tensor.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and tensor.numel() > 0
    )


def largest(tensor: torch.Tensor) -> float:
    """The largest finite magnitude; 0.0 where nothing is finite."""
    with torch.no_grad():
        # One pass that makes no tensor of the same size, as `abs().max()` would.
        found = float(torch.linalg.vector_norm(tensor.detach(), math.inf))
        # One pass is enough unless something is not finite.
        if found < _ENDLESS:
            return found
        finite = tensor.detach().abs()
        finite = finite[finite < _ENDLESS]
        return float(finite.max()) if finite.numel() else 0.0


def exponents(tensor: torch.Tensor) -> tuple[dict[int, int], int]:
    """Elements by the power of two above them, as `ForecastGradient` has it, and how many were exactly zero."""
    with torch.no_grad():
        flat = tensor.detach().reshape(-1)
        # Evenly spread and not drawn: the program's generators stay as they are.
        flat = flat[:: max(1, flat.numel() // _MOST)].float()
        flat = flat[torch.isfinite(flat)]
        values = flat[flat != 0]
        # `bincount` takes no negative numbers; float32's smallest exponent is -148.
        counts = torch.bincount(torch.frexp(values).exponent + _LOWEST).tolist() if values.numel() else []
    return {i - _LOWEST: n for i, n in enumerate(counts) if n}, flat.numel() - values.numel()
