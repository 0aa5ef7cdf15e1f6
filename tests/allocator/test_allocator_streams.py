"""Blocks belong to the stream that asked for them, and wait for other streams that use them."""

from __future__ import annotations

from torchvet.allocator import CachingAllocator

MIB = 1 << 20


def current(allocator: CachingAllocator) -> dict[str, int]:
    return {name: row["current"] for name, row in allocator.statistics.rows().items()}


def test_what_one_stream_gave_back_is_not_anothers() -> None:
    allocator = CachingAllocator()
    first = allocator.malloc(2 * MIB, 0)
    allocator.free(first)
    assert allocator.malloc(2 * MIB, 7) != first and allocator.reserved == 40 * MIB
    assert allocator.malloc(2 * MIB, 0) == first


def test_a_block_used_elsewhere_waits_until_memory_is_asked_for() -> None:
    told: list[tuple[str, int]] = []
    allocator = CachingAllocator(told=lambda action, address, size, stream: told.append((action, address)))
    block = allocator.malloc(3 * MIB)
    allocator.record_stream(block, 5)
    allocator.record_stream(block, 5)
    allocator.free(block)
    now = current(allocator)
    assert (now["allocation"], now["allocated_bytes"]) == (0, 0)
    assert (now["active"], now["active_bytes"], now["requested_bytes"]) == (1, 3 * MIB, 3 * MIB)
    assert told[-1] != ("free_completed", block)
    assert allocator.malloc(3 * MIB) == block and ("free_completed", block) in told
    assert current(allocator)["active"] == current(allocator)["allocation"] == 1
    rows = allocator.statistics.rows()
    assert rows["active_bytes"]["peak"] == rows["allocated_bytes"]["peak"] == 3 * MIB
    allocator.free(block)
    assert current(allocator)["active"] == 0 == rows["active"]["current"] - 1


def test_neighbours_do_not_merge_with_what_waits() -> None:
    allocator = CachingAllocator()
    one, two, three = (allocator.malloc(4 * MIB) for _ in range(3))
    allocator.record_stream(two, 1)
    for block in (two, one, three):
        allocator.free(block)
    assert current(allocator)["inactive_split"] == 2
    allocator.empty_cache()
    assert allocator.reserved == 0 and current(allocator) == dict.fromkeys(current(allocator), 0)


def test_its_own_stream_and_another_live_time_are_no_reason_to_wait() -> None:
    allocator = CachingAllocator()
    block = allocator.malloc(512, 3)
    allocator.record_stream(block, 3)
    allocator.free(block)
    assert current(allocator)["active"] == 0
    again = allocator.malloc(512, 3)
    allocator.record_stream(again, 4)
    allocator.free(again)
    third = allocator.malloc(512, 3)
    allocator.free(third)
    assert (again, third) == (block, block) and current(allocator)["active"] == 0
