"""Rules of the allocator beyond finding a block: limits, what is given back when, and what is counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchvet.allocator import CachingAllocator, OutOfMemory, Settings
from torchvet.allocator.sizes import INTERVALS, rounded

MB = 1 << 20


def test_each_power_of_two_may_have_divisions_of_its_own() -> None:
    intervals = [0] * INTERVALS
    intervals[8] = 2  # sizes from 256 MiB on
    settings = Settings(roundup_intervals=tuple(intervals))
    assert rounded(300 * MB, settings) == 384 * MB
    assert rounded(600 * MB + 1, settings) == 600 * MB + 512
    assert rounded(100 * MB + 1, settings) == 100 * MB + 512


def test_a_share_of_the_card_is_the_limit() -> None:
    allocator = CachingAllocator(1000 * MB)
    allocator.allowed = 100 * MB
    allocator.malloc(90 * MB)
    with pytest.raises(OutOfMemory) as failed:
        allocator.malloc(11 * MB)
    assert failed.value.wanted == 12 * MB and failed.value.driver_free == 910 * MB
    assert (allocator.retries, allocator.ooms) == (1, 1)


def test_what_the_driver_was_asked_for_is_told() -> None:
    allocator = CachingAllocator(MB)
    with pytest.raises(OutOfMemory) as failed:
        allocator.malloc(5)
    assert (failed.value.requested, failed.value.wanted) == (5, 2 * MB)


def listener(told: list[str]) -> Callable[[str, int, int, int], None]:
    """Notes what happened, and the MiB."""
    return lambda action, _, size, __: told.append(f"{action} {size // MB}")


def collected(threshold: float) -> list[str]:
    """What happens to two cached segments, one long unused, when a third is needed."""
    told: list[str] = []
    allocator = CachingAllocator(1000 * MB, Settings(garbage_collection=threshold), listener(told))
    allocator.allowed = 1000 * MB
    allocator.free(allocator.malloc(200 * MB))
    small = allocator.malloc(100 * MB - MB)  # splits the cached one
    large = allocator.malloc(300 * MB)
    allocator.free(small)
    for _ in range(5):
        allocator.free(large)
        large = allocator.malloc(300 * MB)
    told.clear()
    allocator.malloc(250 * MB)
    return told


def test_above_the_threshold_segments_that_were_passed_by_are_given_back() -> None:
    assert collected(0.4) == ["segment_free 200", "segment_alloc 250"]
    assert collected(0.9) == ["segment_alloc 250"]


def test_oversize_blocks_are_given_back_one_by_one() -> None:
    told: list[str] = []
    allocator = CachingAllocator(400 * MB, Settings(max_split_size=64 * MB), listener(told))
    held = [allocator.malloc(100 * MB), allocator.malloc(160 * MB), allocator.malloc(80 * MB)]
    for address in held:
        allocator.free(address)
    assert allocator.oversize_blocks.current == 0 and allocator.oversize_segments.current == 3
    told.clear()
    allocator.malloc(200 * MB)
    assert told == ["segment_free 160", "segment_free 100", "segment_alloc 200"]
    assert allocator.retries == 0, "the rest of the cache stays"


def test_expandable_segments_that_are_empty_are_given_up() -> None:
    allocator = CachingAllocator(1000 * MB, Settings(expandable_segments=True))
    addresses = [allocator.malloc(30 * MB) for _ in range(3)]
    for address in (addresses[1], addresses[0], addresses[2]):
        allocator.free(address)
        allocator.empty_cache()
    assert allocator.reserved == 0 and not list(allocator.chains())
    assert allocator.malloc(100 * MB) and allocator.reserved == 100 * MB


def test_settings_may_change_while_it_runs() -> None:
    allocator = CachingAllocator(1000 * MB)
    plain = allocator.malloc(30 * MB)
    allocator.settings = Settings(expandable_segments=True)
    grown = allocator.malloc(30 * MB)
    allocator.free(plain)
    allocator.free(grown)
    allocator.settings = Settings()
    assert allocator.malloc(30 * MB) == plain, "expandable blocks stay aside"


@given(st.lists(st.one_of(st.integers(1, 40 * MB), st.integers(-60, -1)), max_size=80), st.booleans())
def test_counts_are_what_the_blocks_say(actions: list[int], expandable: bool) -> None:
    """Whatever is asked for and given back, in whatever order."""
    allocator = CachingAllocator(settings=Settings(expandable_segments=expandable))
    live: list[int] = []
    for action in actions:
        if action > 0:
            live.append(allocator.malloc(action))
        elif live:
            allocator.free(live.pop(action % len(live)))
        if action % 7 == 0:
            allocator.empty_cache()
    blocks = [b for chain in allocator.chains() for b in chain]
    for name, statistics in (
        ("all", allocator.statistics),
        ("small", allocator.of_small),
        ("large", allocator.of_large),
    ):
        mine = [b for b in blocks if name == "all" or b.pool.small == (name == "small")]
        rows = statistics.rows()
        used = [b for b in mine if b.allocated]
        split = [b for b in mine if b.free and b.split and not b.expandable]
        assert rows["allocation"]["current"] == len(used)
        assert rows["allocated_bytes"]["current"] == sum(b.size for b in used)
        assert rows["requested_bytes"]["current"] == sum(b.requested for b in used)
        assert rows["reserved_bytes"]["current"] == sum(b.size for b in mine)
        assert rows["inactive_split"]["current"] == len(split)
        assert rows["inactive_split_bytes"]["current"] == sum(b.size for b in split)
        assert all(r["peak"] >= r["current"] == r["allocated"] - r["freed"] for r in rows.values())
    allocator.reset_accumulated()
    allocator.reset_peak()
    assert all(
        r["peak"] == r["current"] and r["allocated"] == r["freed"] == 0 for r in allocator.statistics.rows().values()
    )
