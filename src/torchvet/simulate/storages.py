"""Storages that are on a device: where they say that they are, and how they move."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torchvet.simulate import devices
from torchvet.simulate.allocation import memory, pinned
from torchvet.simulate.tensors import wrap

# Kept before `install` puts its own in the place.
_own_device = torch._C.StorageBase.device  # type: ignore[attr-defined]


class _AsHost(threading.local):
    asked = False


_as_host = _AsHost()


@contextmanager
def as_host() -> Iterator[None]:
    """Within, storages of devices say that they are on the host, where they are."""
    _as_host.asked = True
    try:
        yield
    finally:
        _as_host.asked = False


def _index_of(storage: torch.UntypedStorage) -> int | None:
    # While tensors are sent to another process a storage is what it is: host memory.
    return None if _as_host.asked else memory.device_of(storage)


def _device(self: torch.UntypedStorage) -> torch.device:
    index = _index_of(self)
    return _own_device.__get__(self) if index is None else devices.outer(index)


def _is_cuda(self: torch.UntypedStorage) -> bool:
    return _index_of(self) is not None


def _get_device(self: torch.UntypedStorage) -> int:
    index = memory.device_of(self)
    return -1 if index is None else index


def on_device(storage: torch.UntypedStorage, index: int) -> torch.UntypedStorage:
    """A copy on a device; the storage itself where it is there already."""
    if memory.device_of(storage) == index:
        return storage
    with torch._C.DisableTorchFunction():
        copied = torch.empty(storage.nbytes(), dtype=torch.uint8)
        copied.untyped_storage().copy_(storage)
        return wrap(copied, index).untyped_storage()


def _cuda(self: torch.UntypedStorage, device: Any = None, non_blocking: bool = False) -> torch.UntypedStorage:
    return on_device(self, devices.index_of(device))


def _to(self: torch.UntypedStorage, *, device: Any, non_blocking: bool = False) -> torch.UntypedStorage:
    if devices.is_simulated(device):
        return on_device(self, devices.index_of(device))
    if memory.device_of(self) is None:
        return _own_to(self, device=device)  # type: ignore[no-any-return]
    host: torch.UntypedStorage = self.cpu()  # type: ignore[no-untyped-call]
    # As torch does: a copy that the host does not wait for goes to pinned memory.
    return pinned.remember_storage(host) if non_blocking else host


_own_to = torch.storage._StorageBase.to


def _new(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    if device is not None and devices.is_simulated(device):
        with torch._C.DisableTorchFunction():
            # `UntypedStorage(sequence)` has its bytes; a number is a size.
            if args and not isinstance(args[0], int):
                return on_device(torch._C.StorageBase.__new__(cls, *args), devices.index_of(device))
            size = args[0] if args else 0
            host = torch.empty(size, dtype=torch.uint8)
            return wrap(host, devices.index_of(device)).untyped_storage()
    if device is not None:
        kwargs["device"] = device
    return torch._C.StorageBase.__new__(cls, *args, **kwargs)


def install() -> None:
    """Let storages know of the devices."""
    storage: Any = torch.UntypedStorage
    storage.device, storage.is_cuda, storage.get_device = property(_device), property(_is_cuda), _get_device
    storage.cuda, storage.to, storage.__new__ = _cuda, _to, _new
