"""The names of the simulated devices: `cuda` to the program, a private backend to torch.

torch offers one device type to backends from outside, PrivateUse1. The program never sees its name: what it passes in
is translated by `naming.py`, what it reads back (`x.device`) by `tensors.py`.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

BACKEND = "torchvet"
"""What PrivateUse1 is called here. It stands in messages of torch that no program is meant to parse."""


class _Current(threading.local):
    """CUDA's current device belongs to the thread."""

    # The class's value is what a thread that never set one reads.
    index = 0

    def __init__(self) -> None:
        self.streams: dict[int, int] = {}
        """The number of the current stream, by device, where it is not the default one's, 0."""


current = _Current()
_count = 1


def set_count(count: int) -> None:
    """How many devices there are."""
    global _count
    _count = count


def count() -> int:
    """How many devices there are."""
    return _count


_refused = False


def refuse_after_fork(refuse: bool) -> None:
    """Whether this process was forked from one that had used a device."""
    global _refused
    _refused = refuse


def outer(index: int) -> torch.device:
    """A device as the program knows it."""
    return torch.device("cuda", index)


def index_of(device: torch.device | str | int | None) -> int:
    """The number of a simulated device in either of its names. Raises what CUDA raises for one that is not there."""
    # First, for whatever is asked of a device after a fork.
    if _refused:
        raise RuntimeError(
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
            "'spawn' start method"
        )
    if device is None:
        return current.index
    if isinstance(device, int):
        number: int | None = device if device >= 0 else None
    else:
        number = torch.device(device).index
    # `cuda` without a number is the thread's current device.
    if number is None:
        return current.index
    if number >= _count:
        raise torch.AcceleratorError(
            "CUDA error: invalid device ordinal\n"
            f"cuda:{number} was asked for and {_count} simulated {'device is' if _count == 1 else 'devices are'} there"
        )
    return number


def is_simulated(device: Any) -> bool:
    """Whether a device, in either name, is one that is simulated."""
    if isinstance(device, torch.device):
        return device.type in (BACKEND, "cuda")
    if isinstance(device, str):
        return device.partition(":")[0] in (BACKEND, "cuda")
    # torch takes a bare number for a GPU.
    return isinstance(device, int) and not isinstance(device, bool)


def inward(device: Any) -> Any:
    """A device as torch is to hear of it; one that is not simulated comes back as it was given."""
    return torch.device(BACKEND, index_of(device)) if is_simulated(device) else device
