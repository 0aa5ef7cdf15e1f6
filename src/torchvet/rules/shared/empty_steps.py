"""Programs that ended because a scaler was to step an optimizer without any gradient."""

from __future__ import annotations

from torchvet.recording.records.scaling import EmptyStep
from torchvet.recording.records.training import Outcome
from torchvet.rules.kit import RankRecording

_REFUSED = "No inf checks were recorded for this optimizer"


def refused_empty(rank: RankRecording) -> EmptyStep | None:
    """What is known of the step by which the program ended; None where it did not end so."""
    outcome = rank.last(Outcome)
    ended = outcome is not None and _REFUSED in (outcome.error or "")
    return rank.last(EmptyStep) if ended else None
