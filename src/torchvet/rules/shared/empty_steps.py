"""Programs that ended because a scaler was to step an optimizer without any gradient."""

from __future__ import annotations

from torchvet.rules.kit import RankRecording, records

_REFUSED = "No inf checks were recorded for this optimizer"


def refused_empty(rank: RankRecording) -> records.scaling.EmptyStep | None:
    """What is known of the step by which the program ended; None where it did not end so."""
    outcome = rank.last(records.training.Outcome)
    ended = outcome is not None and _REFUSED in (outcome.error or "")
    return rank.last(records.scaling.EmptyStep) if ended else None
