"""The peak that shares are graded by."""

from __future__ import annotations

from torchvet.rules.kit import RankRecording, records


def peak_of(rank: RankRecording) -> int:
    """The highest sum of live bytes seen in any sampled step."""
    return max((w.peak for w in rank.all(records.base.Window)), default=0)
