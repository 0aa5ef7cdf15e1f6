"""What is written down only where two runs are held side by side."""

from __future__ import annotations

from torchvet.recording.records import Record


class Losses(Record):
    """What the backward passes of one step started from, in their order, a scaler's factor taken out.

    None stands for a value that is not finite. Roots of more than one element are left out.
    """

    tick: int
    values: list[float | None]
