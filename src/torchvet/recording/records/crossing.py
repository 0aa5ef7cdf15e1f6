"""Records about what crosses between host and device, and about what makes the host wait."""

from __future__ import annotations

from typing import Literal

from torchvet.recording.records.base import Place, Record

_HABIT = 0.5
"""From this share of the sampled steps on something happens in every step."""


class Crossing(Record):
    """Copies between host and device, or waits, of one kind from one line in sampled steps: running totals.

    `wait` makes the host wait for the device; copies do unless the host's memory is pinned and the copy non_blocking.
    `steps` of `sampled` had at least one, `most` in one step. `bytes` of all copies together.
    """

    place: Place
    kind: Literal["to device", "to host", "wait"]
    what: str
    """The operator or method, by the name that a person would look for."""
    sampled: int
    calls: int = 0
    steps: int = 0
    most: int = 0
    bytes: int = 0
    waits: int = 0
    stalls: int = 0
    """Waits with work queued since the wait before: of values read back to back only the first has to be waited for."""
    pinned: int = 0
    batches: int = 0
    """Calls whose tensor came from a loader."""
    repeated: int = 0
    """Calls that brought the very tensor, unchanged, that the line had brought before."""
    filled: int = 0
    """Calls whose tensor an operator on the host had just made of numbers alone; `filled_by` is its name."""
    filled_by: str = ""
    filled_at: Place | None = None
    back: int = 0
    """Calls whose data had come from the device in the same step, at `back_from`."""
    back_from: Place | None = None
    early: int = 0
    """Calls whose copy ran on, and whose memory the host read, last at `early_at`, before it had waited."""
    early_at: Place | None = None
    examples: str = ""
    """Shape and dtype of the last tensor."""

    @property
    def each_step(self) -> bool:
        """Whether it happens in about every step, and not at intervals."""
        return self.sampled >= 2 and self.steps >= _HABIT * self.sampled

    @property
    def bytes_per_step(self) -> int:
        """Bytes copied in a step that has any."""
        return self.bytes // max(1, self.steps)
