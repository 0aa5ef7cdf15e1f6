"""Device memory: every storage of a simulated tensor is a block of a simulated caching allocator."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

import torch

from torchvet.allocator import CachingAllocator, OutOfMemory
from torchvet.simulate import devices
from torchvet.simulate.allocation.history import History
from torchvet.simulate.allocation.settings import fraction_from, settings_from, text_of

Observer = Callable[[int, int, int, int], object]
"""Told `(device, asked, total, free)` of a request that could not be met, in bytes, before the error is raised."""
observers: list[Observer] = []


class DeviceMemory:
    """One device's memory. All sizes in bytes.

    `total` is what the card has, `context` what the driver takes of it before the first tensor.
    """

    def __init__(self, index: int, total: int, context: int) -> None:
        self.index, self.total, self.context = index, total, context
        self.history = History()
        self.allocator = CachingAllocator(total - context, told=self._segment, total=total)
        self._refused: str | None = None
        self.configuration = text_of(os.environ)
        try:
            self.configure(self.configuration)
        except ValueError as error:
            # Kept for the first allocation, where CUDA refuses it too.
            self._refused = str(error)

    def configure(self, text: str) -> None:
        """Settings as in `PYTORCH_ALLOC_CONF`. Raises ValueError, in CUDA's words, for what CUDA refuses."""
        self.allocator.settings = settings_from(text)
        self.configuration = text
        fraction = fraction_from(text)
        if fraction is not None:
            self.limit(fraction)

    def limit(self, fraction: float) -> None:
        """This share of the card is the most that the process may take."""
        self.allocator.allowed = int(fraction * self.total)

    @property
    def fraction(self) -> float:
        """The share of the card that the process may take."""
        allowed = self.allocator.allowed
        return 1.0 if allowed is None else allowed / self.total

    def take(self, size: int, stream: int | None = None) -> int:
        """The address of a new block, by default the current stream's. Raises CUDA's error where nothing is left."""
        if stream is None:
            stream = devices.current.streams.get(self.index, 0)
        # Only here: a program that never uses the device does not fail for its settings.
        if self._refused is not None:
            raise ValueError(self._refused)
        try:
            address = self.allocator.malloc(size, stream)
        except OutOfMemory as error:
            # Observers may take a snapshot: the message has the figures from before.
            message = self.out_of_memory(error)
            for observer in tuple(observers):
                # Before the error, as CUDA calls them.
                observer(self.index, error.wanted, self.allocator.allowed or self.total, error.driver_free)
            raise torch.OutOfMemoryError(message) from None
        if self.history.active:
            self.history.note("alloc", address, size, stream)
        return address

    def check_room(self, size: int) -> None:
        """Raise CUDA's error where a block of this size could not be had at all."""
        if size > self.total - self.context:
            self.give_back(self.take(size))

    def give_back(self, address: int) -> None:
        """A block that nothing refers to any more."""
        if self.history.active:
            # Asked for and noted first: `free` forgets both.
            size, stream = self.allocator.requested_of(address), self.allocator.stream_of(address)
            self.history.note("free_requested", address, size, stream)
        # Asked first: `free` forgets which streams used it.
        waits = self.allocator.is_used_elsewhere(address)
        if self.history.active and not waits:
            self.history.note("free_completed", address, size, stream)
        self.allocator.free(address)

    def out_of_memory(self, error: OutOfMemory) -> str:
        """CUDA's words for it: what was asked for is what the driver was, as there."""
        a = self.allocator
        allowed = "" if a.allowed is None else f"{amount(a.allowed)} allowed; "
        return (
            f"CUDA out of memory. Tried to allocate {amount(error.wanted)}. GPU {self.index} has a total capacity "
            f"of {amount(self.total)} of which {amount(max(0, error.driver_free))} is free. "
            f"Including non-PyTorch memory, this process has {amount(self.context + a.reserved)} memory in use. "
            f"{allowed}Of the allocated memory {amount(a.allocated)} is allocated by PyTorch, and "
            f"{amount(a.reserved - a.allocated)} is reserved by PyTorch but unallocated. If reserved but unallocated "
            "memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
            "documentation for Memory Management  "
            "(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf) "
            "[This GPU is simulated.]"
        )

    def _segment(self, action: str, address: int, size: int, stream: int) -> None:
        if self.history.active:
            self.history.note(action, address, size, stream)


def amount(size: int) -> str:
    """Bytes as the allocator writes them."""
    if size < 1 << 10:
        return f"{size} bytes"
    for unit, shift in (("KiB", 10), ("MiB", 20)):
        if size < 1 << (shift + 10):
            return f"{size / (1 << shift):.2f} {unit}"
    return f"{size / (1 << 30):.2f} GiB"


_devices: list[DeviceMemory] = []
_blocks: dict[int, _Block] = {}
"""By the storage's key."""


class _Block:
    """A storage on a device: its block goes back when the storage dies."""

    __slots__ = ("address", "memory", "ref", "size")

    def __init__(self, storage: torch.UntypedStorage, memory: DeviceMemory, address: int | None = None) -> None:
        self.memory, self.size = memory, storage.nbytes()
        self.address = memory.take(self.size) if self.size and address is None else address
        self.ref: Any = None

    def resize(self, size: int) -> None:
        """The storage has grown or shrunk in place: a new block, then the old one is given back."""
        # In CUDA's order: for a moment both blocks are held, which may be too much.
        address = self.memory.take(size) if size else None
        self.release()
        self.address, self.size = address, size

    def release(self) -> None:
        """Give the block back."""
        if self.address is not None:
            self.memory.give_back(self.address)
            self.address = None


def set_up(total: int, count: int, context: int) -> None:
    """`count` empty devices of `total` bytes each."""
    devices.set_count(count)
    _blocks.clear()
    _devices[:] = [DeviceMemory(index, total, context) for index in range(count)]


def of(device: Any) -> DeviceMemory:
    """A device's memory, by any name of the device."""
    return _devices[devices.index_of(device)]


def account(host: torch.Tensor, index: int) -> None:
    """See that a tensor's storage has its block. Raises CUDA's error where the device is full."""
    storage = _storage(host)
    if storage is None:  # sparse: its indices and values have storages
        for part in _parts(host):
            account(part, index)
        return
    key = storage._cdata
    # Views share a storage: it has one block.
    block = _blocks.get(key)
    if block is not None:
        # `resize_` of a storage that is there already.
        if block.size != storage.nbytes():
            block.resize(storage.nbytes())
        return
    _keep(_Block(storage, _devices[index]), storage)


def _keep(block: _Block, storage: torch.UntypedStorage) -> None:
    """Until the storage dies."""
    # torch keeps the Python object of a storage as long as the storage itself, so a weak reference tells its end.
    key = storage._cdata
    _blocks[key] = block
    # The reference is kept in the block, or it would never be called.
    block.ref = weakref.ref(storage, lambda _: _blocks.pop(key).release())


def hand_over(old: torch.UntypedStorage, new: torch.UntypedStorage) -> None:
    """The new storage takes the old one's block, where it has one of the same size: it is written in its place."""
    block = _blocks.get(old._cdata)
    # Only a full replacement: anything else would change the amounts.
    if block is None or block.size != new.nbytes() or block.address is None or new._cdata in _blocks:
        return
    heir = _Block(new, block.memory, block.address)
    # The old storage gives nothing back when it dies: it has no address any more.
    block.address = None
    _keep(heir, new)


def record_stream(host: torch.Tensor, stream: int) -> None:
    """Another stream uses a tensor's memory."""
    storage = _storage(host)
    block = None if storage is None else _blocks.get(storage._cdata)
    if block is not None and block.address is not None:
        block.memory.allocator.record_stream(block.address, stream)


def device_of(storage: torch.UntypedStorage) -> int | None:
    """On which device a storage is; None for one of the host."""
    block = _blocks.get(storage._cdata)
    return None if block is None else block.memory.index


def address_of(storage: torch.UntypedStorage) -> int:
    """Where a storage's block is; 0 for one that has none."""
    block = _blocks.get(storage._cdata)
    return 0 if block is None or block.address is None else block.address


def _storage(host: torch.Tensor) -> torch.UntypedStorage | None:
    if host.layout is not torch.strided:
        return None
    try:
        return host.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def _parts(host: torch.Tensor) -> list[torch.Tensor]:
    """The dense tensors that a sparse one is made of."""
    if host.layout is torch.sparse_coo:
        return [host._indices(), host._values()]
    if host.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [host.crow_indices(), host.col_indices(), host.values()]
    if host.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [host.ccol_indices(), host.row_indices(), host.values()]
    return []


def everyone() -> list[DeviceMemory]:
    """All devices' memories."""
    return list(_devices)
