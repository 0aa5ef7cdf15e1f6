"""What a process writes down because it is one of several that train together."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from torchvet.recording.records.base import Place, Record


class Member(Record):
    """This process is one of a group of `world_size`: its rank in the group and on its host. `restart` counts how
    often an elastic launcher has started the group anew; `backend` is empty until the process has joined."""

    rank: int
    world_size: int
    host: str
    local_rank: int | None = None
    restart: int = 0
    backend: str = ""


class Surroundings(Record):
    """What this rank runs with, which other ranks should have as well: the versions of libraries (of those that are
    imported), variables of its environment (of those that are set), and torch's seed when it last asked."""

    versions: dict[str, str] = {}
    variables: dict[str, str] = {}
    seed: int | None = None


class Standstill(Record):
    """The process has not moved for so many seconds, after `tick` step boundaries: the program's line, and the function
    of torch's that it calls there. `waits` says that this function waits for other ranks."""

    tick: int
    seconds: float
    place: Place | None = None
    call: str = ""
    waits: bool = False


class CalledIn(msgspec.Struct):
    """So many collectives in each step up to the `last` one."""

    last: int
    calls: int


class Called(Record):
    """How many collectives of all ranks this rank has called: `total` by the end of step number `step`,
    and so many in each step after it."""

    step: int
    total: int
    stretches: list[CalledIn]


Phase = Literal["before its backward pass", "in a backward pass", "after a backward pass", "in the optimizer's step"]
PHASES: tuple[Phase, ...] = get_args(Phase)


class LastSeen(Record):
    """What a rank did last that was killed without notice: the phase of the step after `tick` steps, and where it was
    seen in this step, if it was: a thread looks once a second."""

    tick: int
    phase: Phase
    place: Place | None = None
    call: str = ""


class Stuck(Record):
    """Seconds after the program had ended its process had not. Its main thread was at `place`, in `call`, where any of
    its frames was left: destructors run after the last of them."""

    seconds: float
    place: Place | None = None
    call: str = ""


class ChildEnd(Record):
    """A process that this one has started has ended: its exit status, or -N where signal N killed it."""

    pid: int
    status: int


class Absent(Record):
    """Ranks of this launch whose records are on other hosts and did not come, and why."""

    ranks: list[int]
    reason: str


class Replica(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One parameter that other ranks may have as well, by digests of its bits: after a step; `before` it (the first
    only), and its gradient's; `passed` is the gradient's when the last backward pass had ended (of modules in
    DistributedDataParallel), `unclipped` before it was clipped. None is unknown.

    DistributedDataParallel keeps a `wrapped` one equal on all ranks. A `late` one took the place of such a one, or was
    added, after the wrapping. Of a `sharded` one each rank has another part. A `constant` one had but one value before
    the first step. A `copied` one belongs to no module, while no optimizer has the parameters of modules that train:
    a library steps on copies of them, or on a part of these."""

    name: str
    shape: tuple[int, ...]
    before: int | None = None
    gradient: int | None = None
    passed: int | None = None
    unclipped: int | None = None
    after: int | None = None
    wrapped: bool = False
    late: bool = False
    sharded: bool = False
    constant: bool = False
    copied: bool = False


class Replicas(Record):
    """The parameters of the `optimizer`-th optimizer around its step number `step`, with its learning rates, the line
    of the step, and the one that `clipped` gradients before it."""

    optimizer: int
    step: int
    parameters: list[Replica]
    rates: list[float] = []
    place: Place | None = None
    clipped: Place | None = None


ActKind = Literal["seed", "loaded", "schedule", "added", "around", "unsynchronized", "converted", "exchanged"]


class OwnAct(Record):
    """What this rank did, so many `times`, by itself.

    It seeded torch with `value`, loaded a module's state, took a step of a schedule, gave an optimizer more parameters.
    Of a module in DistributedDataParallel it called a part without the wrapper, ran one whose gradients were not to be
    reduced (as under `no_sync`), or converted the parameters to another dtype or device. Or it exchanged parts of
    tensors with other ranks (`all_to_all`). `places` are the program's lines, the innermost first: a seed may have come
    in as an argument.
    """

    kind: ActKind
    places: list[Place]
    value: int | None = None
    times: int = 0


class EvaluatedBuffers(Record):
    """The buffers of a module in DistributedDataParallel, the `id`-th, that it does not send to the other ranks: the
    digest of their bits as its `number`-th pass in evaluation mode began, at `place`, and the first one's name."""

    id: int
    number: int
    digest: int
    name: str
    place: Place | None = None


class Batch(Record):
    """The digest of the `number`-th training batch that loaders gave, the line that asked for it, and the one that
    `made` the loader's sampler, or the loader if torch made the sampler."""

    number: int
    digest: int
    place: Place | None = None
    made: Place | None = None


class DistributedModule(Record):
    """A module in DistributedDataParallel, the `id`-th that was seen: its options and what its passes came to.

    `place` is the line that wrapped it, where that was seen. `gradient_bytes` are those of all its gradients,
    `bucket_bytes` those of the buckets that they are averaged in. Of `looked` passes `unused_passes` had parameters
    that this rank did not use. `traversals` searches of the graph for them took `traversal_seconds`.
    `communication_seconds` is what a backward waited on the average for the other ranks, beyond its own work.
    `device` is where its parameters lie, of `devices` of that kind that the process sees.
    """

    id: int
    name: str
    place: Place | None = None
    find_unused_parameters: bool = False
    static_graph: bool = False
    gradient_as_bucket_view: bool = False
    gradient_bytes: int = 0
    bucket_bytes: int = 0
    parameters: int = 0
    looked: int = 0
    unused_passes: int = 0
    traversals: int = 0
    traversal_seconds: float = 0.0
    communication_seconds: float | None = None
    device: str = "cpu"
    devices: int = 0


class SynchronizedPasses(Record):
    """Backward calls on one line through a module in DistributedDataParallel, by its `id`, over the sampled optimizer
    `steps`: `passes` of them averaged gradients over all ranks, and in `several` steps more than one did."""

    id: int
    place: Place
    steps: int = 0
    passes: int = 0
    several: int = 0


class UnfinishedReduction(Record):
    """The error that ended this rank: an earlier pass had left the parameters `names` (the first of `count`) without a
    gradient, so that their average over all ranks was never finished. `place` ran the module, `made` wrapped it."""

    place: Place
    message: str
    module: str
    made: Place | None = None
    names: list[str] = []
    count: int = 0
    found_unused: bool = False


class SampledEpochs(Record):
    """A DistributedSampler of `replicas`, made on `made`: `trained` times a loader went through it on the line `place`
    and optimizers stepped meanwhile, with so many different `epochs`."""

    id: int
    place: Place
    made: Place | None = None
    shuffle: bool = True
    replicas: int = 1
    trained: int = 0
    epochs: int = 0


OwnPhase = Literal["data", "other", "backward", "optimizer"]
"""What a rank does of its own in a step: `other` is the forward pass and whatever stands between the rest."""


class WaitedAt(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A line of the program at which a rank waited for others, for so many seconds a step."""

    place: Place
    seconds: float


class Arrivals(Record):
    """How long this rank has waited for the others, and what it took of its own: running totals.

    `steps` are the numbers of training steps, the same on all ranks that count alike; all lists run along with them, in
    seconds: what the training thread did of its `own`, for how long it `waited`, and for how long it was `delayed`,
    that is ready and without a core of the machine. Steps that torchvet itself has made longer are left out. `sizes`
    are the elements of the tensors that the model was called with, or those of the batches; empty where neither is
    known.
    """

    steps: list[int]
    waited: list[float]
    own: dict[OwnPhase, list[float]]
    delayed: list[float]
    sizes: list[int] = []
    lines: list[WaitedAt] = []
