"""Memory that a kernel of CUDA holds while it runs, beside its arguments and results."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from torchvet.simulate.allocation import memory


def copy_of(tensor: torch.Tensor | None) -> int:
    """Bytes of the copy that a kernel makes of what is not dense in order."""
    return 0 if tensor is None or tensor.is_contiguous() else tensor.numel() * tensor.element_size()


def held(index: int, sizes: Iterable[int]) -> None:
    """Take blocks of these many bytes at once, and give them back. Raises CUDA's error where the device is full."""
    device, taken = memory.everyone()[index], []
    try:
        for size in sizes:
            if size:
                # All before any is given back: they are alive together, and make one peak.
                taken.append(device.take(size))
    finally:
        for address in taken:
            device.give_back(address)
