"""What is written down only where two runs are held side by side."""

from __future__ import annotations

from torchvet.recording.records.base import Place, Record


class Losses(Record):
    """What the backward passes of one step started from, in their order, a scaler's factor taken out.

    None stands for a value that is not finite. Roots of more than one element are left out.
    """

    tick: int
    values: list[float | None]
    gradients: list[float | None] = []
    """The norms of the gradients with which its optimizers stepped; those that a scaler has scaled are left out."""


class MadeAt(Record):
    """Storages that operators made on one of the user's lines in sampled steps: running totals.

    `copied` are those of `bytes` that were plain copies (`clone`, which `contiguous` is where it copies).
    """

    place: Place
    sampled: int
    bytes: int = 0
    copied: int = 0


class Reduced(Record):
    """Forward passes with gradients of a DistributedDataParallel model, called on one of the user's lines, and those
    after which the backward averages over all ranks; with the optimizers' steps since the first: running totals."""

    place: Place
    passes: int = 0
    reduced: int = 0
    steps: int = 0


class ThreadFailed(Record):
    """A thread of the program ended in an exception that nobody caught, while the program went on."""

    kind: str
    """The exception's type."""
    message: str
