"""Which processes of a recording are the ranks of a program that trains in several."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchvet.recording import RankRecording, Recording


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
