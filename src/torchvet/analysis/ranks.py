"""How ranks end: by an error of their own, or because another rank has."""

from __future__ import annotations

from torchvet.recording.records.training import Outcome

_LOST = (
    *("connection closed", "connection reset", "connection refused", "broken pipe", "socket", "remote process exited"),
    *("timed out", "timeout", "preamble", "nccl", "distbackenderror", "distnetworkerror"),
)
"""What an error says that comes of another rank's end, or of its absence."""


def is_lost(outcome: Outcome) -> bool:
    """Whether it ended by an error that another rank's end, or its absence, brings about."""
    text = (outcome.error or "").lower()
    # By the text, as gloo raises plain RuntimeErrors for it.
    return outcome.how == "exception" and any(word in text for word in _LOST)
