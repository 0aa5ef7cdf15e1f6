"""Stacks of simulated allocations are the program's: nothing of torchvet's stands in them."""

from __future__ import annotations

from torchvet.allocator import CachingAllocator
from torchvet.simulate.allocation.history import frames_of, stack_here


def test_a_segments_stack_is_the_programs_own() -> None:
    seen: list[list[str]] = []

    def told(action: str, address: int, size: int, stream: int) -> None:
        seen.append([frame["filename"].replace("\\", "/") for frame in frames_of(stack_here())])

    CachingAllocator(told=told).malloc(1 << 20)
    assert len(seen) == 1 and seen[0][0] == __file__.replace("\\", "/")
    assert not [name for name in seen[0] if "/torchvet/allocator/" in name or "/torchvet/simulate/" in name]
