"""Records about what the labels of batches teach."""

from __future__ import annotations

from torchvet.recording.records.base import Place, Record


class TargetsAhead(Record):
    """Targets of a cross entropy, on the line `place`, that are tokens of the sequences that an embedding got.

    In `steps` sampled steps `agreed` of `targets` were the token `ahead` places after the one that their row of logits
    comes last from: with `by_gradient` the last token of each sequence that the loss's gradient reached, else the
    token in the row's own place.
    """

    place: Place
    ahead: int
    by_gradient: bool = True
    steps: int = 0
    targets: int = 0
    agreed: int = 0
    last: int = -1
