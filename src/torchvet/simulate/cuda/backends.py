"""`torch.backends.cuda` and `torch.backends.cudnn` where they ask whether there is a GPU."""

from __future__ import annotations

from typing import Any

import torch

from torchvet.simulate.tensors import SimulatedTensor

_CUDNN = 92000
"""9.20.0, which torch's wheels for CUDA 12.8 and 13.0 come with since March 2026."""


class _PlanCache:
    """cuFFT's plans: none are made here."""

    size, max_size = 0, 4096

    def clear(self) -> None:
        """Nothing to do."""

    def __getitem__(self, device: Any) -> _PlanCache:
        return self


def _is_acceptable(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, SimulatedTensor) and tensor.dtype in (torch.float16, torch.float32, torch.float64)


_limit = [10]
"""How many algorithms cuDNN's benchmark tries: kept for who asks."""


def _set_limit(limit: int) -> None:
    _limit[0] = limit


def install() -> None:
    """Put the answers in place."""
    torch._C._cuda_get_cudnn_benchmark_limit = lambda: _limit[0]
    torch._C._cuda_set_cudnn_benchmark_limit = _set_limit  # type: ignore[assignment]
    torch.backends.cuda.is_built = lambda: True
    torch.backends.cuda.cufft_plan_cache = _PlanCache()  # type: ignore[assignment]
    torch.backends.cuda.is_flash_attention_available = lambda: True
    cudnn: Any = torch.backends.cudnn
    for module in {id(m): m for m in (cudnn, getattr(cudnn, "m", cudnn))}.values():
        module.is_available = lambda: True
        module.version = lambda: _CUDNN
        module.is_acceptable = _is_acceptable
