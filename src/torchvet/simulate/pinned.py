"""Page-locked host memory: there is none to lock without a GPU, so it is remembered which storages asked for it."""

from __future__ import annotations

import weakref
from typing import Any

import torch

_storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}


def is_pinned(tensor: torch.Tensor) -> bool:
    """Whether a host tensor's memory would be page-locked."""
    try:
        return tensor.untyped_storage()._cdata in _storages
    except (NotImplementedError, RuntimeError):
        return False


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in what would be page-locked memory; the tensor itself where it is there already."""
    if tensor.device.type != "cpu":
        raise RuntimeError(f"cannot pin '{tensor.type()}' only dense CPU tensors can be pinned")
    if is_pinned(tensor):
        return tensor
    copied = tensor.clone(memory_format=torch.preserve_format)
    remember(copied)
    return copied


def install() -> None:
    """Answer for every tensor of the host, in every thread and under any mode."""
    base: Any = torch.Tensor

    def pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
        return pin(self)

    def is_pinned_(self: torch.Tensor, device: Any = None) -> bool:
        return is_pinned(self)

    is_pinned_.__name__ = "is_pinned"
    base.pin_memory, base.is_pinned = pin_memory, is_pinned_


def remember(tensor: torch.Tensor) -> torch.Tensor:
    """From now on this storage counts as page-locked."""
    storage = tensor.untyped_storage()
    key = storage._cdata
    _storages[key] = weakref.ref(storage, lambda _: _storages.pop(key, None))
    return tensor
