"""A few elements of a tensor, by which it is known again."""

from __future__ import annotations

from typing import Any

import torch


def is_plain(value: Any) -> bool:
    """Whether it is a tensor of torch's own with a storage on the CPU: others have a GPU's time, or no content."""
    own = type(value) is torch.Tensor or type(value) is torch.nn.Parameter
    return own and value.layout is torch.strided and not value.is_nested and value.is_cpu


def some_of(tensor: torch.Tensor, most: int) -> torch.Tensor | None:
    """A view of at most so many elements, evenly spread, in the order of memory; None of a tensor that is not torch's
    own, strided and dense, and of one without elements. Nothing is copied, and no other rank is asked."""
    own = type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter
    if not own or tensor.layout is not torch.strided or tensor.is_nested:
        return None
    count = tensor.numel()
    # From the first to the last in memory: a dense tensor has as many, whatever its strides.
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    if not 0 < count == extent:
        return None
    step = -(-count // most)
    return tensor.detach().as_strided((-(-count // step),), (step,), tensor.storage_offset())
