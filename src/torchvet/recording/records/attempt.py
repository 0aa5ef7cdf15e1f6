"""The record of one run of a program with a change that may make its steps quicker, or with none."""

from __future__ import annotations

from torchvet.recording.records.base import Place, Record


class Attempt(Record):
    """A run with one `change` (see `analysis/attempts.py`), made `applied` times in it, first at `place`.

    `seconds` are those of each training step by the wall clock, the device's work included, `losses` what the first
    backward passes started from: oldest first.
    """

    change: str
    applied: int = 0
    place: Place | None = None
    seconds: list[float] = []
    losses: list[float] = []
