"""Records about what the labels of batches teach."""

from __future__ import annotations

from typing import Literal

from torchvet.recording.records.base import Place, Record

Lost = Literal["cut", "compared", "index"]
"""How targets lose what they differ in, see `OneClass`."""

Unfit = Literal["signs", "outside", "several", "scores", "logarithms", "sums", "indices"]
"""What a loss takes labels for something else by, see `UnfitLabels`."""


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


class TargetsOutside(Record):
    """Targets of a regression, on the line `loss`, that what `operator` gave on the line `place` cannot reach.

    Predictions lie between `low` and `high` (None: no limit). In `steps` sampled steps whose loss went backward,
    `below` and `above` of `targets` lay outside by more than `probes.training.labels.out_of_reach` tolerates. `floor`
    is the sum of the squares of how far they did, `spread` that of the distances of all targets from their mean.
    `values` are the least and the largest target that lay outside, `stray` the steps that had any.
    """

    place: Place
    loss: Place
    operator: str
    module: str = ""
    low: float | None = None
    high: float | None = None
    steps: int = 0
    stray: int = 0
    targets: int = 0
    below: int = 0
    above: int = 0
    floor: float = 0.0
    spread: float = 0.0
    values: tuple[float, float] | None = None
    last: int = -1


class OneClass(Record):
    """Targets of a cross entropy with `classes` classes, on the line `place`, that were the class `value` only.

    So it was in `steps` sampled steps; in `varied` losses they were several classes. `targets` were looked at. In
    `converted` of those steps the targets had been made on the line `made`, of numbers that differed and lay between
    `low` and `high`; `how`: they were made whole numbers (`cut`), compared with a `threshold`, or are the `index` of
    the largest of one. `loaded`: they came from a loader, or were taken from a tensor that lasts. Of the loader's
    data set (`dataset`) all of `batches` so far held this class only; a pass over it has `length` batches (0: unknown).
    Without a data set these are looks at all of that tensor.
    """

    place: Place
    value: int
    classes: int
    made: Place | None = None
    how: Lost = "cut"
    threshold: float = 0.0
    loaded: bool = False
    dense: bool = False
    dataset: str = ""
    workers: int = 0
    low: float = 0.0
    high: float = 0.0
    steps: int = 0
    converted: int = 0
    varied: int = 0
    targets: int = 0
    batches: int = 0
    length: int = 0
    last: int = -1


class NoLogarithms(Record):
    """What a `loss` that takes logarithms of probabilities was given on the line `place`, in `steps` sampled steps.

    In `probabilities` of these it was numbers from 0 to 1 whose sums over the classes are 1, in `scores` some were
    above 0 and it was no probabilities. They lay between `low` and `high`. Probabilities were made on the line `made`.
    """

    place: Place
    loss: str
    made: Place | None = None
    steps: int = 0
    probabilities: int = 0
    scores: int = 0
    low: float = 0.0
    high: float = 0.0
    last: int = -1


class UnfitLabels(Record):
    """Labels that a `loss` on the line `place` was given in `steps` sampled steps, and takes for something else.

    `form`: `signs` where it expects -1 and 1 and none is below 0; `outside` of 0 to 1 where it expects probabilities;
    rows that are no shares of 1, since they hold `several` ones, `scores` below and above 0, `logarithms` of shares, or
    other `sums`; `indices` where a row of 0 and 1 stands for a list of classes. In `unfit` of these steps it was so; in
    `doubtful` ones of them it may be meant; in `marked` ones what lies outside may mark what is left out, with one
    number inside. In `fit` steps the labels were right. Of `labels` (numbers, or rows)
    `strays` were not. The labels lay between `low` and `high`; `pair`: they were one of two numbers. They were made on
    the line `made`. `matched`: the scores are of pairs within a batch, or of a list of items: several may be right.
    """

    place: Place
    loss: str
    form: Unfit
    made: Place | None = None
    steps: int = 0
    unfit: int = 0
    doubtful: int = 0
    marked: int = 0
    fit: int = 0
    labels: int = 0
    strays: int = 0
    low: float = 0.0
    high: float = 0.0
    pair: bool = True
    matched: bool = False
    last: int = -1


class ShuffledApart(Record):
    """A loss on the line `place` that in so many sampled `steps` compared what a model gave for rows in one order with
    targets in another, and in `paired` with those in the same one.

    `targets` and `inputs` are the lines that put them into these orders, None where one is as it came, and `how` says
    by what. `mixed`: the model was given rows of several orders in one, as mixup does. `shared`: some targets are in an
    order of the inputs.
    """

    place: Place
    steps: int = 0
    paired: int = 0
    rows: int = 0
    mixed: bool = False
    shared: bool = False
    targets: Place | None = None
    inputs: Place | None = None
    how: list[str] = []


class MaskedForCausal(Record):
    """A causal language model of class `model` took batches, and gave a loss, in so many sampled `steps`; a `collator`
    that masks tokens made them, for the loop on the line `place`."""

    model: str
    collator: str
    place: Place | None
    steps: int = 0
