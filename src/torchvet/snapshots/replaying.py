"""The same allocations under other settings: a trace played through the model of the allocator."""

from __future__ import annotations

from dataclasses import dataclass

from torchvet.allocator import CachingAllocator, OutOfMemory, Settings
from torchvet.readers.snapshot import ALLOC, FREES, OOM
from torchvet.snapshots.memory import DeviceMemory


@dataclass(frozen=True)
class Replayed:
    """What the model came to: bytes reserved at most and at the end, and the event that did not fit, if one."""

    peak_reserved: int
    reserved: int
    split_free: int
    failed_at: int | None = None


def replay(memory: DeviceMemory, settings: Settings, capacity: int | None = None) -> Replayed:
    """Play a device's trace from its beginning. What is older is laid out first, in the order of its addresses, so that
    its own fragmentation is not replayed."""
    allocator = CachingAllocator(capacity, settings)
    trace = memory.lifetimes.trace
    streams = trace.streams or bytes(len(trace))
    moved: dict[int, int] = {}
    at = -1
    try:
        # Their order of allocation is not known. By address they lie as densely as they can.
        for block in sorted(memory.lifetimes.older, key=lambda o: o.address):
            moved[block.address] = allocator.malloc(max(1, block.size))
        for code, address, size in zip(trace.actions, trace.addresses, trace.sizes, strict=True):
            at += 1
            if code == ALLOC:
                if address in moved:  # its free was not recorded
                    allocator.free(moved.pop(address))
                moved[address] = allocator.malloc(max(1, size), streams[at])
            elif code in FREES:
                if address in moved:
                    allocator.free(moved.pop(address))
            elif code == OOM:  # the request that failed then: fails here too, unless the settings have made room
                allocator.free(allocator.malloc(max(1, size), streams[at]))
    except OutOfMemory:
        return _result(allocator, at)
    return _result(allocator, None)


def _result(allocator: CachingAllocator, failed_at: int | None) -> Replayed:
    return Replayed(allocator.peak_reserved, allocator.reserved, allocator.split_free(), failed_at)
