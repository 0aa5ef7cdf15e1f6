"""Other processes of the program: forked ones are refused the device as CUDA does, spawned ones get it too."""

from __future__ import annotations

import multiprocessing.spawn
import multiprocessing.util
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_storage

import torchvet
from torchvet.simulate import devices, storages
from torchvet.simulate.allocation import memory
from torchvet.simulate.cards import Card
from torchvet.simulate.tensors import SimulatedTensor, wrap


class _Here:
    """The process that the simulation was started in; multiprocessing wants an object to call after a fork."""


_here = _Here()


def _after_fork(here: _Here) -> None:
    """In a child of multiprocessing: a device that was in use before the fork cannot be used here."""
    # CUDA refuses only after a first use: a parent that never held memory of a device may fork workers that use it.
    # Whether memory was ever taken tells whether the device was used.
    devices.refuse_after_fork(any(held.allocator.peak_reserved for held in memory.everyone()))


def start_in_child(card: Card, count: int) -> None:
    """Called by a spawned process when it reads what it is to do, before the program's module is imported."""
    from torchvet.simulate.start import start, started

    # A spawned process of a spawned one is told twice.
    if not started():
        start(card, count)


_IN_CHILD = """
import sys
sys.path.append({folder!r})
from torchvet.simulate.api.processes import start_in_child
from torchvet.simulate.cards import Card
sys.path.pop()
start_in_child({card!r}, {count})
"""


class _Start:
    """Pickled among what a spawned process is told; unpickling it starts the simulation there.

    As source, because it is read before the process knows its parent's `sys.path`.
    """

    def __init__(self, card: Card, count: int) -> None:
        folder = str(Path(torchvet.__file__).parents[1])
        self.source = _IN_CHILD.format(folder=folder, card=card, count=count)

    def __reduce__(self) -> Any:
        return exec, (self.source, {})


def rebuild(storage: Any, dtype: torch.dtype, layout: tuple[Any, ...], *on_device: Any) -> torch.Tensor:
    """A tensor of the device that another process has sent. Memory is shared.

    `storage` is a function and its arguments, `layout` is offset, size and stride, then device and `requires_grad`.
    """
    storage_of, told = storage
    index, requires_grad = on_device
    host = torch.empty(0, dtype=dtype).set_(storage_of(*told), *layout)
    return wrap(host, index).requires_grad_(requires_grad)


def _share(tensor: SimulatedTensor) -> Any:
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
            "crossing process boundaries.  If you just want to transfer the data, call detach() on the tensor before "
            "serializing (e.g., putting it on the queue)."
        )
    host = tensor.host
    # As the host's: memory of a real device is shared by handles of CUDA, which do not exist here.
    # torch asks the storage for its device, and would use CUDA's handles.
    with storages.as_host():
        storage = reduce_storage(host.untyped_storage())  # type: ignore[no-untyped-call]
    layout = (host.storage_offset(), tuple(host.size()), host.stride())
    return rebuild, (storage, host.dtype, layout, tensor.ordinal, tensor.requires_grad)


def install(card: Card, count: int) -> None:
    """Take part where processes begin and tensors cross between them."""
    multiprocessing.util.register_after_fork(_here, _after_fork)
    tell: Callable[[str], dict[str, Any]] = multiprocessing.spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        return {**tell(name), "torchvet": _Start(card, count)}

    multiprocessing.spawn.get_preparation_data = get_preparation_data
    ForkingPickler.register(SimulatedTensor, _share)
