"""Workspaces of cuBLAS: the first matrix product of a thread takes one from the caching allocator, and keeps it.

Sizes are those that torch asks for by default: 8,519,680 bytes, 32 MiB from capability 9.0 on. Nine recordings of real
programs have one each for the thread of the forward passes and, where they train, for that of the backward passes.
"""

from __future__ import annotations

import torch

from torchvet.simulate import devices
from torchvet.simulate.allocation import memory

PRODUCTS = frozenset(
    ["mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "addr", "_addmm_activation", "linear"]
)
"""Operators that ask cuBLAS, without their in-place marks."""
_in_backward = torch._C._current_graph_task_id
_taken: dict[tuple[int, bool, int], int] = {}
"""Addresses by device, whether it is the backward pass's, and stream."""
_size = 0


def set_size(size: int) -> None:
    """How many bytes one takes; 0 for a card without."""
    global _size
    _size = size
    _taken.clear()


def needed(index: int) -> None:
    """A matrix product is about to be computed on a device. Raises CUDA's error where the device is full."""
    if not _size:
        return
    # The simulation has one thread for both passes, while a GPU's backward has a thread, and a workspace, of its own.
    # torch keeps one for each handle and stream.
    key = (index, _in_backward() >= 0, devices.current.streams.get(index, 0))
    if key not in _taken:
        _taken[key] = memory.everyone()[index].take(_size)


def addresses(index: int) -> list[int]:
    """Where a device's are."""
    return [address for (device, *_), address in _taken.items() if device == index]


def clear() -> None:
    """Give all of them back (`torch._C._cuda_clearCublasWorkspaces`)."""
    for (index, _, _), address in _taken.items():
        memory.everyone()[index].give_back(address)
    _taken.clear()
