"""The model of the caching allocator: its sizes, its blocks, and real recordings played through it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchvet.allocator import CachingAllocator, OutOfMemory, Settings
from torchvet.allocator.sizes import rounded, segment_for
from torchvet.readers.isolated import read_snapshot
from torchvet.snapshots.memory import SnapshotMemory
from torchvet.snapshots.replaying import replay

DATA = Path(__file__).resolve().parents[1] / "data"
MB = 1 << 20
BOTH = pytest.mark.parametrize("expandable", [False, True])


@pytest.mark.parametrize(
    ("asked", "divisions", "given"),
    [(1, 0, 512), (512, 0, 512), (513, 0, 1024), (1200, 4, 1536), (1200 * 1024, 4, 1280 * 1024), (4096, 4, 4096)],
)
def test_requests_are_rounded(asked: int, divisions: int, given: int) -> None:
    assert rounded(asked, Settings(roundup_divisions=divisions)) == given


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (512, 2 * MB),
        (MB, 2 * MB),
        (MB + 512, 20 * MB),
        (10 * MB - 512, 20 * MB),
        (10 * MB, 10 * MB),
        (11 * MB, 12 * MB),
    ],
)
def test_segments_have_torchs_sizes(size: int, segment: int) -> None:
    assert segment_for(size) == segment


def test_the_smallest_fitting_block_is_split_and_merged_again() -> None:
    allocator = CachingAllocator()
    first, second = allocator.malloc(4 * MB), allocator.malloc(4 * MB)
    assert allocator.reserved == 20 * MB and second - first == 4 * MB
    allocator.free(first)
    assert allocator.malloc(3 * MB) == first
    allocator.free(first)
    allocator.free(second)
    assert [b.size for chain in allocator.chains() for b in chain] == [20 * MB]
    allocator.empty_cache()
    assert allocator.reserved == 0


def test_a_rest_of_a_megabyte_is_not_split_off() -> None:
    allocator = CachingAllocator()
    assert allocator.size_of(allocator.malloc(19 * MB + MB // 2)) == 20 * MB
    assert allocator.size_of(allocator.malloc(18 * MB)) == 18 * MB


def test_what_is_pinned_cannot_go_back() -> None:
    allocator = CachingAllocator()
    large, small = allocator.malloc(16 * MB), allocator.malloc(2 * MB)
    kept = allocator.malloc(2 * MB)
    allocator.free(large)
    allocator.empty_cache()
    assert allocator.split_free() == allocator.reserved - 4 * MB > 0
    allocator.free(small)
    allocator.free(kept)
    assert allocator.split_free() == 0


def test_cached_segments_are_given_back_before_memory_is_out() -> None:
    told: list[str] = []
    allocator = CachingAllocator(100 * MB, told=lambda action, *_: told.append(action))
    allocator.free(allocator.malloc(60 * MB))
    allocator.free(allocator.malloc(80 * MB))
    with pytest.raises(OutOfMemory) as failed:
        allocator.malloc(120 * MB)
    assert told == ["segment_alloc", "segment_free", "segment_alloc", "segment_free", "oom"]
    assert (failed.value.requested, failed.value.driver_free) == (120 * MB, 100 * MB)


def test_expandable_segments_grow_by_pages_at_their_end() -> None:
    told: list[tuple[str, int]] = []
    allocator = CachingAllocator(
        settings=Settings(expandable_segments=True), told=lambda a, _, s, __: told.append((a, s))
    )
    first, second = allocator.malloc(15 * MB), allocator.malloc(15 * MB)
    assert second == first + 15 * MB and allocator.reserved == 40 * MB
    allocator.free(first)
    allocator.free(second)
    assert allocator.malloc(35 * MB) == first, "what was two blocks is one"
    allocator.free(first)
    allocator.empty_cache()
    assert allocator.reserved == 0
    assert told == [("segment_map", 20 * MB), ("segment_map", 20 * MB), ("segment_unmap", 40 * MB)]


def test_max_split_size_keeps_large_blocks_whole() -> None:
    allocator = CachingAllocator(settings=Settings(max_split_size=64 * MB))
    large = allocator.malloc(100 * MB)
    allocator.free(large)
    assert allocator.malloc(16 * MB) != large
    assert allocator.malloc(90 * MB) == large


def test_streams_and_sizes_have_pools_of_their_own() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(4 * MB, stream=0))
    allocator.malloc(4 * MB, stream=7)
    allocator.malloc(512)
    assert allocator.reserved == 42 * MB


@BOTH
@given(st.lists(st.one_of(st.integers(1, 40 * MB), st.integers(-60, -1)), max_size=120))
def test_blocks_cover_segments_without_overlap(expandable: bool, actions: list[int]) -> None:
    """Whatever is asked for and given back, in whatever order."""
    allocator = CachingAllocator(settings=Settings(expandable_segments=expandable))
    live: list[int] = []
    asked: dict[int, int] = {}
    for action in actions:
        if action > 0:
            live.append(allocator.malloc(action))
            asked[live[-1]] = action
        elif live:
            allocator.free(live.pop(action % len(live)))
    chains = list(allocator.chains())
    assert sum(b.size for chain in chains for b in chain) == allocator.reserved
    taken = sorted((b.address, b.size) for chain in chains for b in chain if b.allocated)
    assert sorted(live) == [address for address, _ in taken]
    assert all(size >= asked[address] for address, size in taken)
    everything = sorted((b.address, b.size) for chain in chains for b in chain)
    assert all(a + size <= b for (a, size), (b, _) in pairwise(everything))
    for address in live:
        allocator.free(address)
    allocator.empty_cache()
    assert allocator.reserved == allocator.allocated == allocator.requested == 0


def test_a_real_recording_replays_to_the_byte() -> None:
    """Nine segments, 36 allocations from an empty device, torch 2.6."""
    memory = SnapshotMemory(read_snapshot(DATA / "silmont.pickle")).devices[0]
    replayed = replay(memory, Settings())
    assert replayed.reserved == memory.reserved == 3_781_165_056
    assert replayed.split_free == sum(s.split_free for s in memory.segments)
