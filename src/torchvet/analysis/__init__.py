"""What recordings mean as numbers: growth of names, steps, memory limits, costs, facts. Arithmetic, no judgment."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchvet.analysis.growth import GrowthSummary
    from torchvet.recording import RankRecording, Recording


def growth_of(rank: RankRecording) -> GrowthSummary:
    """What grew in a rank. The arithmetic is loaded when it is first asked for, which `check` never does."""
    # `statistics`, which it needs, drags in fractions and decimals.
    from torchvet.analysis import growth

    return growth.growth_of(rank)


def growth_by_rank(recording: Recording) -> list[tuple[RankRecording, GrowthSummary]]:
    """What grew, rank by rank."""
    return [(rank, growth_of(rank)) for rank in recording.ranks]
