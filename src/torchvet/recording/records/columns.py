"""Records about the columns of a dataset that no batch has."""

from __future__ import annotations

from torchvet.recording.records.base import Place, Record


class DroppedColumns(Record):
    """A Trainer of transformers, by its class, leaves `columns` of its training set out of each batch, since no
    argument of its model's `forward` has their names. `forward` takes any others as its `keywords`.

    `parts` are the names of the model's own children and parameters. The line `place` had called the Trainer.
    """

    id: int
    trainer: str
    model: str
    columns: list[str]
    forward: Place
    keywords: str
    parts: list[str] = []
    place: Place | None = None
