"""Records about how the layers of a network are put together, and what they are given."""

from __future__ import annotations

from torchvet.recording.records.base import Place, Record


class LinearNetwork(Record):
    """A network that is one affine map, the second of whose layers gets what the line `place` made.

    In `steps` sampled steps a backward pass began from a loss that compares what `layers` layers in a row made, with
    nothing nonlinear between them. `enter` and `leave` are the widths of the first and the last one; with `convolves`
    some are convolutions. `weights` are the names of their weights, the first layer's first, `identities` the parts of
    the model that are `nn.Identity`, and `made` the lines that made those.
    """

    place: Place
    layers: int
    enter: int
    leave: int
    convolves: bool = False
    weights: tuple[str, ...] = ()
    identities: list[str] = []
    made: list[Place] = []
    steps: int = 0
    last: int = -1


class RepeatedEntry(Record):
    """A `module` stands at `entries` places of a `container` that the line `place` builds.

    In `called` sampled steps it was called more than once with gradients on, and in `steps` of these, the last of them
    `last`, as often in a row as it is an entry, or three times, with the same input and result: `times` at most. It has
    so many `parameters` that train. With `draws` a part of it draws at each call, as dropout does, and the results
    differ.
    """

    id: int
    place: Place
    container: str
    module: str
    entries: int
    parameters: int = 0
    draws: bool = False
    called: int = 0
    steps: int = 0
    times: int = 0
    last: int = -1


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


class DroppedInEvalMode(Record):
    """A line dropped a random part of what it was given, while the `module` that called it was in eval mode and
    gradients were switched off: in so many sampled calls."""

    place: Place
    module: str
    calls: int = 0


class DeadActivation(Record):
    """All `numbers` that an activation (`operator`, in `module`, the `number`-th of the step there) gave on the line
    `place` are ends of its range.

    It is so in `steps` sampled steps, all since the step `since`. In the last of them the gradients of `weights`
    weights were exactly 0, some of which are `names`; those of `moved` were not.
    """

    place: Place
    module: str
    number: int
    operator: str
    since: int
    steps: int = 0
    numbers: int = 0
    weights: int = 0
    moved: int = 0
    names: list[str] = []


class AlikeUnits(Record):
    """The units of the weight `name` are equal, and so are their gradients, in `steps` sampled steps.

    In `pulled` of these the gradient was not 0. All its numbers were `value` at the first, if they were one; the line
    `place` filled it.
    """

    id: int
    name: str
    shape: tuple[int, ...]
    place: Place | None = None
    value: float | None = None
    steps: int = 0
    pulled: int = 0
    last: int = -1


class ClampedScores(Record):
    """A cross entropy on the line `loss` is given scores that a ReLU made on the line `place`, in `module`.

    In `steps` sampled steps `zeros` of `scores` numbers were 0. Of `classes` classes `dead` had samples in the last
    of these steps, and none of them a score above 0 for its own class.
    """

    place: Place
    loss: Place
    module: str
    steps: int = 0
    scores: int = 0
    zeros: int = 0
    classes: int = 0
    dead: int = 0
    last: int = -1


class PaddedRead(Record):
    """Padding is taken for data on the line `place`, in `steps` sampled steps.

    `kind`: "last" where the last step of a recurrent `layer`'s result is read, "state" where its last state is, "hides"
    where a mask of attention hides what is no padding. Of `rows` rows of `length` steps (by the last) `padded` end
    earlier, by `padding` steps together.
    """

    place: Place
    kind: str
    layer: str
    steps: int = 0
    rows: int = 0
    padded: int = 0
    padding: int = 0
    length: int = 0
    last: int = -1


class SingleSamples(Record):
    """A `model` whose batch norm trained on batches of one sample: in `single` of the `passes` of its layers that
    sampled steps heard. Where the line `place` runs the `layer` that differs most, one of `layers`, a sample has
    `positions` values in a channel, and its means lie `shift` standard deviations from the running ones.

    `shift` is the median over the channels and the last `looks` passes that began once the running statistics had
    settled. `effect` is by which share of it a sample's loss changes if the running statistics normalize it, to first
    order by its gradients: the median of the last `losses`. The model evaluated on the line `used`.
    """

    model: str
    place: Place | None = None
    layer: str = ""
    layers: int = 0
    passes: int = 0
    single: int = 0
    positions: int = 0
    shift: float = 0.0
    looks: int = 0
    effect: float = 0.0
    losses: int = 0
    used: Place | None = None
