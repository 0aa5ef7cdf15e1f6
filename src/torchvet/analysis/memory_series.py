"""The sizes of memory over the steps of a run, as the system and the device's allocator counted them."""

from __future__ import annotations

from torchvet.analysis.steps import current_steps, steps_between
from torchvet.analysis.trend import Sizes, Trend, trend_of
from torchvet.recording.reader import RankRecording
from torchvet.recording.records.training import Host, HostSamples


def heap_sizes(rank: RankRecording) -> Sizes:
    """Bytes that the program has from malloc at step boundaries; empty where the system does not say."""
    # Not strict: without mallinfo2 the heap's list is empty.
    sampled = [pair for r in rank.since_restart(HostSamples) for pair in zip(r.ticks, r.heap, strict=False)]
    # Recordings of earlier versions have a few samples only.
    return sampled or [(h.tick, h.heap) for h in rank.since_restart(Host) if h.heap is not None]


def resident_sizes(rank: RankRecording) -> Sizes:
    """Likewise, the resident set."""
    return [pair for r in rank.since_restart(HostSamples) for pair in zip(r.ticks, r.resident, strict=False)]


def collectives(rank: RankRecording) -> Sizes:
    """Collectives in the ring of torch's flight recorder at step boundaries; empty where there are none."""
    return [pair for r in rank.since_restart(HostSamples) for pair in zip(r.ticks, r.collectives, strict=False)]


def device_sizes(rank: RankRecording) -> Sizes:
    """Bytes that the device's caching allocator had given out at step boundaries; empty where there is no device."""
    return [(s.n, s.allocated) for s in current_steps(rank) if s.allocated is not None]


def per_step(rank: RankRecording, sizes: Sizes) -> tuple[Trend | None, float]:
    """The trend of sizes, and how many ticks there are to a step of the kind that rates are of."""
    trend = trend_of(sizes)
    if trend is None:
        return None, 1.0
    _, steps = steps_between(rank, trend.first, trend.last)
    # Ticks are boundaries of any kind; rates are told by training step.
    return trend, (trend.last - trend.first) / max(1, steps)


def longest_climb(sizes: Sizes, rate: float) -> tuple[int, int]:
    """Of the stretches over which sizes rise from sample to sample, by about `rate` bytes a tick: the bytes and ticks
    of the one that rises most; 0 and 0 where there is none. A sawtooth's teeth are such stretches."""
    best, start = (0, 0), 0
    for i in range(1, len(sizes) + 1):
        # One turn beyond the last sample, which ends the stretch that is still rising.
        if i < len(sizes) and sizes[i][1] >= sizes[i - 1][1]:
            continue
        ticks, risen = sizes[i - 1][0] - sizes[start][0], sizes[i - 1][1] - sizes[start][1]
        # A single jump rises too; only what rises at the trend's own rate is its tooth.
        if ticks and rate / 2 <= risen / ticks <= rate * 3 / 2:
            best = max(best, (risen, ticks))
        start = i
    return best
