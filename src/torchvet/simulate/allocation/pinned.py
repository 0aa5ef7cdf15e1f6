"""Page-locked host memory: there is none to lock without a GPU, so it is remembered which storages asked for it."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from torchvet.allocator.statistics import Statistic

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
    # A copy as torch makes one: pinned memory is other memory.
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
    # On the class, past the function mode: a mode is out of force within calls that it saw.
    base.pin_memory, base.is_pinned = pin_memory, is_pinned_


def remember(tensor: torch.Tensor) -> torch.Tensor:
    """From now on this tensor's memory counts as page-locked."""
    remember_storage(tensor.untyped_storage())
    return tensor


def remember_storage(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """From now on this storage counts as page-locked."""
    # torch's host allocator rounds up to powers of two.
    key, size = storage._cdata, 1 << max(0, storage.nbytes() - 1).bit_length()
    if key not in _storages:
        _blocks.grow(1)
        _bytes.grow(size)
        _storages[key] = weakref.ref(storage, lambda _: _forget(key, size))
    return storage


_blocks, _bytes = Statistic(), Statistic()


def _forget(key: int, size: int) -> None:
    if _storages.pop(key, None) is not None:
        _blocks.shrink(1)
        _bytes.shrink(size)


def statistics() -> dict[str, Any]:
    """Of `torch.cuda.host_memory_stats`: rounded up to powers of two. Nothing is cached, nothing takes time."""
    no_time = dict.fromkeys(("total", "max", "min", "count", "avg"), 0)
    blocks, size = _blocks.row(), _bytes.row()
    return {
        "allocations": blocks,
        "allocated_bytes": size,
        "active_requests": dict(blocks),
        "active_bytes": dict(size),
        "num_host_alloc": blocks["allocated"],
        "num_host_free": blocks["freed"],
        "host_alloc_time": dict(no_time),
        "host_free_time": dict(no_time),
    }


def reset_peak() -> None:
    """The peaks begin anew from what is held now."""
    _blocks.reset_peak()
    _bytes.reset_peak()


def reset_accumulated() -> None:
    """What was added and taken away is counted anew from 0."""
    _blocks.reset_accumulated()
    _bytes.reset_accumulated()
