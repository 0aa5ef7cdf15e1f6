"""Records about layers that read sequences."""

from __future__ import annotations

from torchvet.recording.records.base import Place, Record


class BatchAsSequence(Record):
    """On the line `place` a `layer` whose first dimension is the sequence was given (`batch`, `length`, `width`), and
    its first dimension is that of the samples of a batch. It was made on the line `made`.

    It was so in `steps` sampled steps that train, the last of them `last`; `sizes` are the batches' sizes. In `others`
    calls a layer of the kind worked along the other dimension of samples of a batch.
    """

    place: Place
    layer: str
    batch: int
    length: int
    width: int
    made: Place | None = None
    steps: int = 0
    others: int = 0
    sizes: list[int] = []
    last: int = -1
