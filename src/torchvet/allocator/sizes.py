"""The allocator's sizes: how a request is rounded, which pool it belongs to, how much is taken from the driver for it.

All constants are in bytes and have the names of `c10/cuda/CUDACachingAllocator.h` (torch 2.13) in their docstrings.
"""

from __future__ import annotations

from dataclasses import dataclass

SMALLEST = 512
"""kMinBlockSize: every size is rounded up to a multiple of it."""
SMALL = 1 << 20
"""kSmallSize: the largest request that goes to the small pool; also the largest rest that is not split off."""
SMALL_SEGMENT = 2 << 20
"""kSmallBuffer: what the small pool takes from the driver at a time."""
LARGE_SEGMENT = 20 << 20
"""kLargeBuffer: what the large pool takes for a request below LARGE_REQUEST."""
LARGE_REQUEST = 10 << 20
"""kMinLargeAlloc: from here on a request gets a segment of its own size."""
LARGE_STEP = 2 << 20
"""kRoundLarge: such a segment is a multiple of it."""
INTERVALS = 16
"""kRoundUpPowerOfTwoIntervals: from 1 MiB on, one for each power of two."""


@dataclass(frozen=True)
class Settings:
    """What PYTORCH_CUDA_ALLOC_CONF may say.

    Sizes in bytes. `roundup_divisions` is between two powers of two, 0 for none; where `roundup_intervals` is given it
    says so for each of the `INTERVALS` powers of two from 1 MiB on. `garbage_collection` is a share of the limit.
    """

    expandable_segments: bool = False
    max_split_size: int | None = None
    roundup_divisions: int = 0
    roundup_intervals: tuple[int, ...] = ()
    garbage_collection: float = 0.0
    max_rounding: int = LARGE_SEGMENT
    """max_non_split_rounding: how much larger a block that is never split may be than what is asked for."""

    def divisions(self, size: int) -> int:
        """Into how many steps the powers of two around a size are divided."""
        if not self.roundup_intervals:
            return self.roundup_divisions
        # Intervals begin at 1 MiB.
        interval = size.bit_length() - SMALL.bit_length()
        return self.roundup_intervals[min(max(interval, 0), INTERVALS - 1)]


def rounded(size: int, settings: Settings) -> int:
    """What a request of `size` bytes takes at least."""
    if size < SMALLEST:
        return SMALLEST
    if settings.roundup_divisions or settings.roundup_intervals:
        divisions = settings.divisions(size)
        # Below that the steps would be smaller than a block may be.
        if divisions > 1 and size > SMALLEST * divisions:
            return _to_division(size, divisions)
    return (size + SMALLEST - 1) & -SMALLEST


def _to_division(size: int, divisions: int) -> int:
    """Rounded up to the next of `divisions` even steps between two powers of two."""
    floor = 1 << (size.bit_length() - 1)
    if floor == size:
        return size
    step = floor // divisions
    # More divisions than bytes between two powers of two.
    return -(-size // step) * step if step else floor * 2


def segment_for(size: int) -> int:
    """What is taken from the driver for a rounded size that no free block fits."""
    if size <= SMALL:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if size < LARGE_REQUEST else -(-size // LARGE_STEP) * LARGE_STEP
