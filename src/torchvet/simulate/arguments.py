"""Tensors within the arguments and results of operators, which nest in lists and tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch


def tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """All tensors, in order."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def replaced(value: Any, change: Callable[[torch.Tensor], Any], device: torch.device | None = None) -> Any:
    """The same value with `change(tensor)` for each tensor, and with `device`, if given, for each device."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if device is not None and isinstance(value, torch.device):
        return device
    # Lists of numbers are sizes. They are frequent and long, and hold no tensor.
    if isinstance(value, (list, tuple)) and value and not isinstance(value[0], (int, float)):
        # Lists stay lists and tuples tuples: operators tell `int[]` from tensors by it.
        return type(value)([replaced(item, change, device) for item in value])
    return value


def meta_like(tensor: torch.Tensor) -> torch.Tensor:
    """A meta tensor of the same shape, strides and dtype."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")
