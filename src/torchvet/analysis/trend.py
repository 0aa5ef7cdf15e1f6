"""Whether a series of sizes goes on rising, and how surely: steady growth told from warming up, jumps and sawteeth.

The later half of a run is cut into stretches of equal length. The floor of each stretch (the smallest size in it) is
compared with the floor of the one before: steady growth raises every floor, a jump raises one, noise raises some and
lowers others. The median of these rises is the rate; the interval leaves out the largest and the smallest rise.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

Sizes = Sequence[tuple[int, int]]
"""Tick and size in bytes, oldest first."""

_STRETCHES = 8
_LEAST = 4
"""Stretches below which rises say nothing."""
_EACH = 2
"""Samples that it takes in a stretch, where there are enough for that."""
_WARM = 8
"""Samples at first that say nothing of the rest; a quarter of them in a short run."""
_FELL = 0.5
"""Share of a rise that must have been freed at once before, so that the rise is a tooth of a saw."""


@dataclass(frozen=True)
class Trend:
    """Bytes per tick over the ticks `first` to `last`: the likely rate, and the interval that it lies in.

    `ceiling` is by how much the largest size of the later half lies above that of the earlier half, per tick between.
    `falls` says that the size fell again by a good part of what it rises. `half` is how many ticks the later half of
    the series takes: more than from `first` to `last` where nothing was sampled for a while.
    """

    rate: float
    low: float
    high: float
    ceiling: float
    falls: bool
    first: int
    last: int
    half: float
    samples: int


def trend_of(sizes: Sizes) -> Trend | None:
    """The trend of a series; None where there are too few samples."""
    # Allocators fill their pools over the first steps, which no later rise repeats.
    warm = sizes[min(_WARM, len(sizes) // 4) :]
    if len(warm) < 2 * _LEAST:
        return None
    middle = (warm[0][0] + warm[-1][0]) / 2
    # Halves by tick and not by number of samples: sampling gets rarer as a run goes on.
    later = [(t, s) for t, s in warm if t >= middle]
    earlier = [(t, s) for t, s in warm if t < middle]
    if len(later) < _LEAST or not earlier:
        return None
    count = max(_LEAST, min(_STRETCHES, len(later) // _EACH))
    rises = _rises(later, count)
    ordered = sorted(rises)
    # With few rises both ends are needed: without them the interval would be too narrow.
    inner = ordered[1:-1] if len(ordered) > _LEAST else ordered
    top, before = max(s for _, s in later), max(s for _, s in earlier)
    return Trend(
        rate=statistics.median(rises),
        low=inner[0],
        high=inner[-1],
        # The tops of the halves lie half a series apart, on the average.
        ceiling=(top - before) / max(1.0, (warm[-1][0] - warm[0][0]) / 2),
        falls=_falls(later, count),
        first=later[0][0],
        last=later[-1][0],
        half=later[-1][0] - middle,
        samples=len(later),
    )


def _rises(sizes: Sizes, count: int) -> list[float]:
    """The rise from each stretch's floor to the next one's, per tick."""
    floors = _floors(sizes, count)
    return [(b[1] - a[1]) / max(1, b[0] - a[0]) for a, b in itertools.pairwise(floors)]


def _floors(sizes: Sizes, count: int) -> list[tuple[int, int]]:
    """The first tick and the smallest size of each of so many stretches."""
    # So every stretch has a sample as long as there are as many samples as stretches.
    edges = [len(sizes) * i // count for i in range(count + 1)]
    parts = [sizes[a:b] for a, b in itertools.pairwise(edges)]
    return [(part[0][0], min(s for _, s in part)) for part in parts]


def _falls(sizes: Sizes, count: int) -> bool:
    """Whether floors fell by a good part of what they rise in all after that."""
    floors = [size for _, size in _floors(sizes, count)]
    highest, deepest = floors[0], 0
    for floor in floors:
        highest = max(highest, floor)
        deepest = max(deepest, highest - floor)
    # Of floors and not of samples: one low sample is noise.
    return deepest > 0 and deepest >= _FELL * (max(floors) - min(floors))
