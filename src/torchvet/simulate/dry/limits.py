"""The card's size in a dry run: where it runs out the program is told nothing, so that all of a step can be sized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from torchvet.simulate.allocation import memory
from torchvet.simulate.dry.batches import batches

_BOUNDLESS = 1 << 50


@dataclass
class High:
    """The most that a device held since `reset`, in bytes, and whether it was more than the card has."""

    allocated: int = 0
    reserved: int = 0
    ran_out: bool = False


made_in: dict[tuple[int, int], int] = {}
"""The innermost module, by identity, of allocations by their device and their number in its history."""
_highs: dict[int, High] = {}


def high_of(index: int = 0) -> High:
    """A device's."""
    return _highs.setdefault(index, High())


def reset(bounded: bool, emptied: bool) -> None:
    """Count anew. `bounded` says whether the card's size counts again, `emptied` that what is cached is given back."""
    for held in memory.everyone():
        if emptied:
            held.allocator.empty_cache()
        _highs[held.index] = High(held.allocator.allocated, held.allocator.reserved)
        # Unbounded, what would be needed is measured beyond the card's size.
        held.allocator.capacity = held.total - held.context if bounded else _BOUNDLESS


def install() -> None:
    """Take part in every request."""
    take: Any = memory.DeviceMemory.take

    def take_(self: memory.DeviceMemory, size: int, stream: int | None = None) -> int:
        high = high_of(self.index)
        try:
            address: int = take(self, size, stream)
        except torch.OutOfMemoryError:
            # Noted and allowed: the rest of the step is to be measured too.
            high.ran_out = True
            # From here on for the rest of the step; `reset` bounds it again.
            self.allocator.capacity, self.allocator.allowed = _BOUNDLESS, None
            address = take(self, size, stream)
        if self.history.tracing and batches.stack:
            made_in[self.index, self.history.noted - 1] = id(batches.stack[-1])
        high.allocated = max(high.allocated, self.allocator.allocated)
        high.reserved = max(high.reserved, self.allocator.reserved)
        return address

    memory.DeviceMemory.take = take_  # type: ignore[method-assign]
    # It comes before a refusal of this machine, whose memory no tensor of a dry run takes.
    memory.DeviceMemory.check_room = lambda self, size: None  # type: ignore[method-assign]
