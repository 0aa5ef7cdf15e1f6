"""`torch.accelerator`: the same devices under the name that does not say which kind they are."""

from __future__ import annotations

from typing import Any

import torch

from torchvet.simulate.cuda import cards, memory, streams


def current_accelerator(check_available: bool = False) -> torch.device:
    """CUDA."""
    return torch.device("cuda")


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Not simulated."""


ANSWERS: dict[str, Any] = {
    "current_accelerator": current_accelerator,
    "is_available": cards.is_available,
    "device_count": cards.device_count,
    "current_device_index": cards.current_device,
    "current_device_idx": cards.current_device,
    "set_device_index": cards.set_device,
    "set_device_idx": cards.set_device,
    "device_index": cards.device,
    "current_stream": streams.current_stream,
    "set_stream": streams.set_stream,
    "synchronize": streams.synchronize,
    "empty_cache": memory.empty_cache,
    "memory_stats": memory.memory_stats,
    "memory_allocated": memory.memory_allocated,
    "max_memory_allocated": memory.max_memory_allocated,
    "memory_reserved": memory.memory_reserved,
    "max_memory_reserved": memory.max_memory_reserved,
    "reset_peak_memory_stats": memory.reset_peak_memory_stats,
    "reset_accumulated_memory_stats": _nothing,
    "get_memory_info": memory.mem_get_info,
}
"""By the name in `torch.accelerator`."""
