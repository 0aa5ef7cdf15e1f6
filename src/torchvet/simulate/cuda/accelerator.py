"""`torch.accelerator`: the same devices under the name that does not say which kind they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torchvet.simulate.cuda import cards, memory, streams


def current_accelerator(check_available: bool = False) -> torch.device:
    """CUDA."""
    return torch.device("cuda")


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own that does the same: torch.compile's tables hold each function once."""

    def answer(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return functools.wraps(function)(answer)


ANSWERS: dict[str, Any] = {
    "current_accelerator": current_accelerator,
    "is_available": _own(cards.is_available),
    "device_count": _own(cards.device_count),
    "current_device_index": _own(cards.current_device),
    "current_device_idx": _own(cards.current_device),
    "set_device_index": _own(cards.set_device),
    "set_device_idx": _own(cards.set_device),
    "device_index": cards.device,
    "current_stream": _own(streams.current_stream),
    "set_stream": _own(streams.set_stream),
    "synchronize": _own(streams.synchronize),
    "empty_cache": _own(torch.cuda.empty_cache),
    "memory_stats": _own(torch.cuda.memory_stats),
    "memory_allocated": _own(memory.memory_allocated),
    "max_memory_allocated": _own(memory.max_memory_allocated),
    "memory_reserved": _own(memory.memory_reserved),
    "max_memory_reserved": _own(memory.max_memory_reserved),
    "reset_peak_memory_stats": _own(torch.cuda.reset_peak_memory_stats),
    "reset_accumulated_memory_stats": _own(torch.cuda.reset_accumulated_memory_stats),
    "get_memory_info": _own(memory.mem_get_info),
    "empty_host_cache": _own(lambda: None),
}
"""By the name in `torch.accelerator`."""
