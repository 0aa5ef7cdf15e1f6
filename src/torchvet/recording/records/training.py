"""Records about how the training loop uses autograd, optimizers, hooks and loaders.

Most are running totals that are written again as they change: for one key (place, optimizer, name) the last counts.
"""

from __future__ import annotations

from typing import Literal

from torchvet.recording.records.base import Place, Record, SiteBytes

ENOUGH_JUDGED = 3
"""Graphs kept by one line from which on it is judged, where it is known of each whether it was used again."""


class BackwardUse(Record):
    """Calls of backward with `retain_graph` or `create_graph` from one line.

    `reused` counts the calls whose graph a later backward or grad went through; `judged` those of which that is
    known. `held` is the bytes that the retained graph still saved after the call (sampled).
    """

    place: Place
    flag: Literal["retain_graph", "create_graph"]
    calls: int
    judged: int = 0
    reused: int = 0
    held: int = 0
    peak: int = 0


class EvaluationForward(Record):
    """Forward passes that built a graph nobody went back through, outside training.

    `graph` is the bytes saved for a backward pass that did not come, at most, in one pass; `peak` the highest live
    bytes seen in the same passes. `training_mode` is the module's flag, `backwarded` counts the passes whose graph was
    used. Backward went through a part of the graph in `entered` more passes, from the output of a hook, say; in those
    `left` is the bytes saved, at most, that it did not go through.
    """

    place: Place
    module: str
    calls: int
    training_mode: bool
    backwarded: int = 0
    graph: int = 0
    peak: int = 0
    entered: int = 0
    left: int = 0


class ConstantSoftmax(Record):
    """On one line softmax normalised over a dimension of size 1, in `calls` sampled calls: `names` are the parameters
    that what it was given was computed from."""

    place: Place
    shape: tuple[int, ...]
    dim: int
    calls: int = 0
    names: list[str] = []


class NormalisedTwice(Record):
    """A loss on one line that normalises what `how` (softmax or sigmoid) has made on another, with a gradient: sampled
    calls."""

    place: Place
    made: Place | None
    how: str
    calls: int = 0


class OwnWeights(Record):
    """`load_state_dict` on one line was given the model's own parameters, `calls` times: nothing is brought back.
    `taken` is the line whose `state_dict()` gave them, where the weights had been changed by `changed` steps since."""

    place: Place
    parameters: int
    calls: int = 0
    model: str = ""
    taken: Place | None = None
    changed: int = 0


class NothingLoaded(Record):
    """`load_state_dict` on one line was given `given` names, none of which the `model` has: it took nothing, and raised
    nothing. `name` is one of them, `wanted` one of the model's.

    With the `prefix` taken off (or, after a minus sign, put on) `fitting` of its `parameters` would have been found.
    `later`: whether it has taken something of another dict since.
    """

    place: Place
    model: str
    parameters: int
    given: int
    name: str = ""
    wanted: str = ""
    prefix: str = ""
    fitting: int = 0
    later: bool = False


class EarlySchedule(Record):
    """The first step of a scheduler, by its class, came before its optimizer's. `alone`: it was the only one before it,
    without an argument, where no gradients were there yet, and the same line took the next after the optimizer's."""

    place: Place
    name: str
    optimizer: str = ""
    alone: bool = False


class FallenRate(Record):
    """A `schedule` (its class) has taken its optimizer's rate from `highest` to `rate`, and at the `looks` from step
    `since` to step `until` the `parameters` that were compared were the same to the last bit, although the optimizer
    had written to them and they had gradients. `schedule_steps` were taken meanwhile, on the line `place`; `made` is
    the line of its constructor."""

    place: Place | None
    made: Place | None
    schedule: str
    optimizer: str = ""
    rate: float = 0.0
    highest: float = 0.0
    since: int = 0
    until: int = 0
    looks: int = 0
    schedule_steps: int = 0
    parameters: int = 0


class TrainModePass(Record):
    """A `layer` that behaves otherwise in train mode ran in that mode with gradients switched off: the innermost line,
    those `around` it outward, and how many of the passes that were looked at."""

    place: Place
    layer: str
    around: list[Place] = []
    passes: int = 0


class EvalModeSteps(Record):
    """A `model` that was trained in train mode before was trained with its `layer` and all of that kind in eval mode,
    first seen at step `since`, in `steps` of the steps that were looked at. `switched` is the line that called `eval()`
    on it, where it ran without gradients next: an evaluation. `around` are the lines that led there, outward."""

    model: str
    layer: str
    since: int
    steps: int = 0
    switched: Place | None = None
    around: list[Place] = []


class LeftInEvalMode(Record):
    """A `part` of a model with `layers` of dropout was in eval mode at each look, from step `since` on, and `steps` of
    them found its parameters moved. A library has put it into eval mode, which the line `place` had called."""

    part: str
    layers: int
    place: Place
    since: int
    steps: int = 0


class EndTokens(Record):
    """The loop on the line `place` gave `batches` of tokens, with labels that are these tokens or left out. Of `texts`
    texts, the last token of `silent` has no label; it is one of `tokens`, of which several are `mixed`. Of a single
    one: in `only` of the texts it alone was left out, and `labeled` times in all it has a label. It stands in
    `padded_so` of the `padded` places that are not read."""

    place: Place
    batches: int = 0
    texts: int = 0
    silent: int = 0
    only: int = 0
    labeled: int = 0
    tokens: list[int] = []
    mixed: bool = False
    padded: int = 0
    padded_so: int = 0


ENOUGH_PASSES = 2
"""Evaluations of an averaged model from which on it is one that evaluates."""


class FirstStatistics(Record):
    """A `model` that no optimizer steps, whose weights the program changed between `changes` looks: at `untouched` of
    them all its batch norm `layers` had the statistics that they were made with (mean 0, variance 1). It evaluated in
    `passes` sampled forward passes, on the line `used`; `written` is the line that changes the weights."""

    model: str
    layers: int
    changes: int = 0
    untouched: int = 0
    passes: int = 0
    used: Place | None = None
    written: Place | None = None


FAST = 0.5
"""The momentum of batch norm from which on the last batch makes up most of its statistics."""


class FastStatistics(Record):
    """A `model` with that many batch norm `layers` whose momentum is at least `FAST`; the largest is `momentum`.

    From one step to the next, at each of `looks`, the means of the layer that moved most moved by `jumps` of a standard
    deviation. The model evaluated on the line `used`.
    """

    model: str
    layers: int
    momentum: float
    looks: int = 0
    jumps: list[float] = []
    used: Place | None = None


class MixedSamples(Record):
    """On the line `place` what a recurrent `layer` returned, of the shape `state` (its second dimension is that of the
    samples), was viewed as `view`, whose first dimension is to be that of the samples. Operators computed with its rows
    `calls` times in `steps` sampled steps, the last of them `last`."""

    place: Place
    layer: str
    state: list[int]
    view: list[int]
    calls: int = 0
    steps: int = 0
    last: int = -1


class UnchangedCopy(Record):
    """A `model` whose parameters have the shapes of a trained one's and no optimizer, as looked at from step `first` to
    `last`: some elements were those of the first look in all but `changes` of `looks`. It ran without
    gradients in `passes` sampled forward passes, on the line `used`. `loaded` are the lines that have loaded a state
    dict into it, each with those that called it."""

    id: int
    model: str
    first: int
    last: int = 0
    looks: int = 0
    changes: int = 0
    passes: int = 0
    used: Place | None = None
    loaded: list[Place] = []


class ChangedByReading(Record):
    """Rows that a `dataset` keeps in its `attribute` were others in `changed` of `batches` batches after a loader had
    read these than before, in the `loop`-th loop over it or later; the loop stands on the line `place`, and `read_at`
    is where the dataset's class makes an item. `is_tensor` tells a tensor from an array."""

    id: int
    dataset: str
    attribute: str
    place: Place | None
    read_at: Place | None
    loop: int
    is_tensor: bool = False
    batches: int = 0
    changed: int = 0


class SummedLosses(Record):
    """A backward call on a sum of `parts` losses whose graphs share no node and were built one after the other.

    `saved` bytes are what all their graphs save, `largest` what the largest saves. `calls` counts the followed calls.
    """

    place: Place
    parts: int
    saved: int
    largest: int
    calls: int = 1


class ZeroedInPlace(Record):
    """Gradients set to zero and kept, where dropping them would have lowered the peak by `saving` bytes."""

    place: Place
    bytes: int
    peak: int
    saving: int
    calls: int = 1


class StaleAtPeak(Record):
    """Storages of the step before, still bound at this step's peak and never read again: `bytes` of `peak`.

    `names` are the variables that held them, `name_bytes` their bytes in the same order. `saving` is by how much the
    window's peak would be lower had they died when the step began. `place` is where the largest storages came from,
    `bound` the function that has the first name, at the line that it was at when the step began.
    """

    tick: int
    kind: str
    bytes: int
    peak: int
    names: list[str]
    name_bytes: list[int]
    saving: int = 0
    with_graph: int = 0
    place: Place | None = None
    bound: Place | None = None
    sites: list[SiteBytes] = []


class CollectorUse(Record):
    """Python's cyclic collector: how often, how long, and which sampled storages only it freed.

    `freed` bytes of the storages born in `sampled` watched steps died inside a collection, the oldest `longest` steps
    after it was born, in `steps` different ones; `owners` names the classes that the cycles went through. The heap was
    `heap_freed` bytes smaller after collections than before, those after tick `since` up to tick `until`. `full`
    collections went through all objects, the last at tick `full_at`; the others leave garbage that is old.
    """

    collections: int
    seconds: float
    freed: int = 0
    storages: int = 0
    sampled: int = 0
    enabled: bool = True
    longest: int = 0
    steps: int = 0
    owners: list[str] = []
    place: Place | None = None
    sites: list[SiteBytes] = []
    heap_freed: int = 0
    since: int = 0
    until: int = 0
    full: int = 0
    full_at: int = 0


class HookFunction(Record):
    """A function in a module's or tensor's hook table, with the lines that its code spans."""

    name: str
    path: str
    first_line: int
    last_line: int
    module: str
    table: str


class HookCount(Record):
    """How many hooks all live modules had at a tick; `place` and `function` are of the most frequent one."""

    tick: int
    hooks: int
    function: str | None = None
    most: int = 0
    module: str = ""
    place: Place | None = None


class SparseGradient(Record):
    """A sparse gradient's stored entries and bytes at a tick."""

    tick: int
    name: str
    entries: int
    bytes: int
    place: Place | None = None


class LoaderMemory(Record):
    """How many of a loader's batches were alive, of those made; `capacity` is its prefetch window."""

    tick: int
    place: Place | None
    made: int
    alive: int
    bytes: int
    batch_bytes: int
    capacity: int
    length: int | None = None
    holder: str | None = None
    path: list[str] = []


class LoopBound(Record):
    """A loop over a loader of known length, in the function whose locals die with it."""

    place: Place
    length: int


class Host(Record):
    """The host's own view at a tick: resident set, heap in use (glibc) and, where it is limited, virtual memory; None
    where the system does not say."""

    tick: int
    resident: int | None
    heap: int | None
    nodes: int | None = None
    virtual: int | None = None


class HostSamples(Record):
    """The host's own view at many ticks since the record before: heap in use, Python's small objects included, resident
    set, and collectives in the ring of torch's flight recorder; an entry a tick, or none where that is not known."""

    ticks: list[int]
    heap: list[int] = []
    resident: list[int] = []
    collectives: list[int] = []


class Ran(Record):
    """Lines of the user's that were seen running in sampled steps; each stands in one record of a run."""

    path: str
    lines: list[int]


class Outcome(Record):
    """How the program ended, with the status that it would have alone; `ticks` has evaluations, `main_steps` none."""

    how: Literal[
        "finished", "exit", "exception", "interrupt", "out-of-memory", "steps-reached", "os-exit", "killed",
        "not-started",
    ]  # fmt: skip
    status: int
    ticks: int
    seconds: float
    error: str | None = None
    place: Place | None = None
    stack: list[Place] = []
    main_steps: int = 0


class BatchChange(Record):
    """A sampler of batches was made with `size` samples a batch and given `used`, as was asked for."""

    size: int
    used: int


class MemoryFailure(Record):
    """A request for device memory that failed, the `number`-th: bytes asked for, what the process may have and what the
    driver had left. `snapshot` is the file that was left; None where enough had been written."""

    tick: int
    device: int
    asked: int
    total: int
    free: int
    number: int
    snapshot: str | None = None


class Overhead(Record):
    """Seconds spent by torchvet within the program, each under one kind of look, of `elapsed`; `while_stepping` of them
    before the program's end, the last of its steps having ended `stepping` seconds after the first."""

    elapsed: float
    seconds: dict[str, float]
    sampled_steps: int = 0
    stepping: float = 0.0
    while_stepping: float = 0.0


Probe = Literal["everything", "steps", "storages", "survival", "graphs", "names", "numbers", "lines", "another"]
"""The probes that can fail as a whole. `steps` hears of steps, `storages` notes new storages of sampled steps,
`survival` says which of them live on, `graphs` follows autograd graphs, `names` finds names that hold memory,
`numbers` looks for what is not finite, `lines` says which of them take the time, `another` is one of the many that look
for one kind of fault each."""


class Unwatched(Record):
    """What trained and was not followed, which leaves open whether the program is healthy.

    `backward`: calls that belong to none of the `of` steps that were counted. `process`: processes that trained beside
    more than are observed. `started`: processes that were started in a way that is not followed, with the `command` of
    the first; they may have trained, and matter where nobody else has.
    """

    kind: Literal["backward", "process", "started"]
    count: int
    of: int = 0
    command: str = ""


class Unchecked(Record):
    """What a probe could not look at, and why. `voids` says that a leak could hide there, so that a run in which none
    was found says nothing; `graphs`, that autograd graphs were not followed to their end. `failed` names the probe
    where it does not work in this process, or where its own error ended it: what it would have found is not known."""

    check: str
    reason: str
    voids: bool = False
    graphs: bool = False
    failed: Probe | None = None
