"""The sizes of memory over the steps of a run, as the system and the device's allocator counted them."""

from __future__ import annotations

from torchvet.analysis.steps import current_steps, steps_between
from torchvet.analysis.trend import Sizes, Trend, trend_of
from torchvet.recording.reader import RankRecording
from torchvet.recording.records.training import Host, HostSamples


def heap_sizes(rank: RankRecording) -> Sizes:
    """Bytes that the program has from malloc at step boundaries; empty where the system does not say."""
    sampled = [pair for r in rank.since_restart(HostSamples) for pair in zip(r.ticks, r.heap, strict=False)]
    # Recordings of earlier versions have a few samples only.
    return sampled or [(h.tick, h.heap) for h in rank.since_restart(Host) if h.heap is not None]


def resident_sizes(rank: RankRecording) -> Sizes:
    """Likewise, the resident set."""
    return [pair for r in rank.since_restart(HostSamples) for pair in zip(r.ticks, r.resident, strict=False)]


def device_sizes(rank: RankRecording) -> Sizes:
    """Bytes that the device's caching allocator had given out at step boundaries; empty where there is no device."""
    return [(s.n, s.allocated) for s in current_steps(rank) if s.allocated is not None]


def per_step(rank: RankRecording, sizes: Sizes) -> tuple[Trend | None, float]:
    """The trend of sizes, and how many ticks there are to a step of the kind that rates are of."""
    trend = trend_of(sizes)
    if trend is None:
        return None, 1.0
    _, steps = steps_between(rank, trend.first, trend.last)
    return trend, (trend.last - trend.first) / max(1, steps)
