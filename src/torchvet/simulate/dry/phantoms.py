"""Host tensors without memory behind them: pages that nobody writes to, read as zeros and never taken from the machine.

They are ordinary CPU tensors to the program and to torch: a kernel that reads one finds zeros, one that writes to one
takes real memory. So `hosts.py` lets neither happen where it can tell.
"""

from __future__ import annotations

import math
import mmap
import sys
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from torchvet.simulate.dry import values

LARGE = 1 << 16
"""Bytes from which on a tensor that the program makes on the host gets no memory: below, its numbers are real."""
LARGE_ROW = 1 << 24
"""The same for tensors of one dimension, which are orders and indices more often than weights."""
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
"""MAP_NORESERVE, which Python has no name for: the system need not have what is never used."""

_storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}
"""By the storage's key."""


def is_phantom(tensor: torch.Tensor) -> bool:
    """Whether a host tensor's numbers were never worked out. Others than dense tensors of the host are not."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return False
    try:
        return tensor.untyped_storage()._cdata in _storages
    except (NotImplementedError, RuntimeError):
        return False


def is_storage(storage: torch.UntypedStorage) -> bool:
    """Whether a host storage has no memory."""
    return storage._cdata in _storages


def phantom(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A host tensor of this shape that takes no memory."""
    # The extent that strides reach, which may be less or more than the elements.
    count = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if math.prod(size) else 0
    needed = max(1, count * dtype.itemsize)
    with torch._C._DisableTorchDispatch():
        flat = torch.frombuffer(_pages(needed), dtype=torch.uint8)
        storage = flat.untyped_storage()
        key = storage._cdata
        # The key is an address, which a later storage may have: the entry goes with the storage.
        _storages[key] = weakref.ref(storage, lambda _: _storages.pop(key, None))
        return torch.empty(0, dtype=dtype).set_(storage, 0, tuple(size), tuple(stride))


def _pages(size: int) -> Any:
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    # Untouched pages read as one shared page of zeros.
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)


def bytes_of(tensor: torch.Tensor) -> int:
    """What a tensor without overlap takes."""
    return tensor.numel() * tensor.itemsize


def made_up(like: torch.Tensor) -> torch.Tensor:
    """A host tensor in the shape of a meta tensor whose numbers nobody knows: see `values.py`."""
    if bytes_of(like) >= LARGE:
        return phantom(like.size(), like.stride(), like.dtype)
    with torch._C._DisableTorchDispatch():
        made = torch.empty_strided(like.size(), like.stride(), dtype=like.dtype)
        return made.fill_(values.stand_in(like))


def host_copy(meta: torch.Tensor) -> torch.Tensor:
    """What a copy of a meta tensor to the host gives."""
    numbers = values.known(meta)
    if numbers is None:
        values.note("host tensor")
        return made_up(meta)
    with torch._C._DisableTorchDispatch():
        return numbers.clone()
