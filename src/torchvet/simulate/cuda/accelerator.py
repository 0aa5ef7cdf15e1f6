"""`torch.accelerator`: the same devices under the name that does not say which kind they are."""

from __future__ import annotations

from typing import Any

import torch

from torchvet.simulate import devices
from torchvet.simulate.cuda import memory as _memory
from torchvet.simulate.cuda import streams as _streams
from torchvet.simulate.cuda.cards import current_device as current_device_index
from torchvet.simulate.cuda.cards import device as device_index
from torchvet.simulate.cuda.cards import device_count, is_available
from torchvet.simulate.cuda.cards import set_device as set_device_index

current_device_idx, set_device_idx = current_device_index, set_device_index
current_stream, set_stream, synchronize = _streams.current_stream, _streams.set_stream, _streams.synchronize
empty_cache, memory_stats = _memory.empty_cache, _memory.memory_stats
memory_allocated, max_memory_allocated = _memory.memory_allocated, _memory.max_memory_allocated
memory_reserved, max_memory_reserved = _memory.memory_reserved, _memory.max_memory_reserved
reset_peak_memory_stats, get_memory_info = _memory.reset_peak_memory_stats, _memory.mem_get_info


def current_accelerator(check_available: bool = False) -> torch.device:
    """CUDA."""
    return torch.device("cuda")


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Not simulated: counts of peaks alone are reset."""


reset_accumulated_memory_stats = _nothing
ANSWERS = (
    "is_available", "device_count", "current_accelerator", "current_device_index", "current_device_idx",
    "set_device_index", "set_device_idx", "device_index", "current_stream", "set_stream", "synchronize", "empty_cache",
    "memory_stats", "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved",
    "reset_peak_memory_stats", "reset_accumulated_memory_stats", "get_memory_info",
)  # fmt: skip
__all__ = ["ANSWERS", "devices"]
