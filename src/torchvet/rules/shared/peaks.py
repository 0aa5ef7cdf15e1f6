"""The peak that shares are graded by."""

from __future__ import annotations

from torchvet.recording.records.base import Window
from torchvet.rules.kit import RankRecording


def peak_of(rank: RankRecording) -> int:
    """The highest sum of live bytes seen in any sampled step."""
    return max((w.peak for w in rank.all(Window)), default=0)
