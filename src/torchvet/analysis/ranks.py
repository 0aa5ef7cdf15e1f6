"""The ranks of a run: which processes they are, and which of them ended because another did."""

from __future__ import annotations

from torchvet.recording.reader import RankRecording, Recording
from torchvet.recording.records.training import Outcome

_LOST = (
    *("connection closed", "connection reset", "connection refused", "broken pipe", "socket", "remote process exited"),
    *("timed out", "timeout", "preamble", "nccl", "distbackenderror", "distnetworkerror"),
)
"""What an error says that comes of another rank's end, or of its absence."""


def members(recording: Recording) -> list[RankRecording]:
    """One process for each rank, by rank: of several the one that an elastic launcher started last. Empty where the
    program trains alone."""
    found: dict[int, RankRecording] = {}
    for one in recording.ranks:
        if one.member is not None and (one.rank not in found or _newer(one, found[one.rank])):
            found[one.rank] = one
    return [found[rank] for rank in sorted(found)] if len(found) > 1 else []


def _newer(one: RankRecording, other: RankRecording) -> bool:
    assert one.member is not None and other.member is not None
    return (one.member.restart, one.ticks) > (other.member.restart, other.ticks)


def is_lost(outcome: Outcome) -> bool:
    """Whether it ended by an error that another rank's end, or its absence, brings about."""
    text = (outcome.error or "").lower()
    return outcome.how == "exception" and any(word in text for word in _LOST)
