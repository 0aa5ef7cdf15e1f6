"""Where the time of steps went: by line of the program, as a clock beside it saw, and what makes all of them slower."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchvet.recording.records.base import Place, Record

Phase = Literal["data", "forward", "backward", "optimizer", "other"]
"""By the functions of torch's that ran around the line or below it: a loader's, a module's, and so on."""
Stage = Literal["", "item", "collate", "wait", "start", "end", "pin"]
"""Of a loader: a dataset's item is made, items become a batch, a worker's batch is waited for, workers are started, are
ended, a batch is copied to pinned memory."""


class LineTime(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Seconds in which the program's innermost line was this one, with the lines that had called it, innermost first.

    `looks` is how often it was seen, in `steps` different steps. `calls` is the function that the line called, where
    that is not the user's and is written in Python, and neither a loader, a module, a backward pass nor an optimizer;
    `kinds` says what else ran below it ("save", "log"; "collect" where Python collected garbage meanwhile). The
    instruction covers `span` (first line, column, last line, column; columns count from 0), where that is known.
    `quiet` says that a function that runs without gradients was around it. `thirds` are the seconds in the first, the
    middle and the last third of the watched steps, where there were enough of them.
    """

    place: Place
    seconds: float
    looks: int
    steps: int
    phase: Phase = "other"
    stage: Stage = ""
    calls: str = ""
    kinds: list[str] = []
    callers: list[Place] = []
    span: tuple[int, int, int, int] | None = None
    quiet: bool = False
    thirds: tuple[float, float, float] | None = None


class LineTimes(Record):
    """The lines of `steps` steps that were watched for `seconds`, in which `looks` looks were taken: running totals.

    The first steps, sampled steps and what came after the last step are left out. `interval` is the mean time between
    looks; `own` is what looking took of its thread's own time. `rest` seconds went to lines that are not listed.
    `calls` are the seconds of the phases "data" and "backward" in the same time, by the calls themselves. `thirds` are
    the seconds of the first, the middle and the last third of the steps. `loggers` has the lowest level that each of
    Python's loggers has let through; the root has no name.
    """

    seconds: float
    steps: int
    looks: int
    interval: float
    own: float
    rest: float = 0.0
    calls: dict[str, float] = {}
    thirds: tuple[float, float, float] | None = None
    loggers: dict[str, int] = {}
    lines: list[LineTime] = []


class WorkerTimes(Record):
    """What the forked workers of loaders did: `busy` of `seconds`, both summed over so many workers, went to making
    batches; `lines` are the lines that made them."""

    workers: int
    seconds: float
    busy: float
    lines: list[LineTime] = []


class WorkerStarts(Record):
    """The loop on the line `place` went `starts` times over a loader, made on the line `made`, which starts `workers`
    anew for each pass. Of the `seconds` that its batches were waited for, `first` went to first batches."""

    place: Place
    workers: int
    made: Place | None = None
    starts: int = 0
    seconds: float = 0.0
    first: float = 0.0


SMALL = 64
"""Elements of a tensor that take longer to ask for than to work on."""


class OperatorsAt(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Operators that ran on one of the user's lines, or below it.

    `reads` of them, called by the line itself, read an element, or a row of at most `SMALL` elements. `modules` says
    that the line calls a module. `joined` are the bytes that `cat` and `stack` made there in each of the steps `ticks`.
    """

    place: Place
    count: int
    reads: int = 0
    modules: bool = False
    joined: list[int] = []
    ticks: list[int] = []


class LineOperations(Record):
    """The lines that ran the most operators in `sampled` sampled steps: running totals. Of `cut` of them, steps of very
    many operators, only a part was seen."""

    sampled: int
    cut: int = 0
    lines: list[OperatorsAt] = []


class AnomalyMode(Record):
    """Autograd's anomaly detection: the line that has switched it on last, whether it checks for NaN as well, and in
    how many of the sampled steps' backward `passes` it was on."""

    place: Place | None = None
    check_nan: bool = True
    passes: int = 0
    on: int = 0


class UpdateTimes(Record):
    """One update of an optimizer by each of its implementations, in seconds, on made tensors of the shapes, dtypes and
    devices of its parameters. `plain` is the one that the program has. `tensors` have `elements` in all; `place` is the
    line of the step, `made` that of the optimizer."""

    name: str
    place: Place
    tensors: int
    elements: int
    plain: float
    fused: float | None = None
    foreach: float | None = None
    made: Place | None = None


class StepSamples(Record):
    """How many samples loaders gave for a training step, in the middle one of so many sampled `steps`."""

    samples: int
    steps: int


MANY_PASSES = 8
"""Backward passes through one graph in a step from which on they are many."""


class RepeatedPasses(Record):
    """A line that differentiated the same graph again and again: in `steps` sampled steps it went through `graphs` of
    them, `MANY_PASSES` times each or more, in `passes` passes in all. The largest has so many `nodes`. `by_torch` says
    that a function of `torch.autograd.functional` did so."""

    place: Place
    is_grad: bool = True
    by_torch: bool = False
    steps: int = 0
    graphs: int = 0
    passes: int = 0
    nodes: int = 0


class IgnoredRows(Record):
    """Rows of logits with `columns` columns that a matrix product at `place` has made, in `calls` sampled calls of a
    loss: `ignored` of `rows` have the target that the loss ignores, in each call the share `least` or more. The product
    was `part` of the line's products, by their multiplications, or more."""

    place: Place
    loss: Place
    columns: int
    calls: int = 0
    rows: int = 0
    ignored: int = 0
    least: float = 1.0
    part: float = 1.0


class PaddedColumns(Record):
    """Columns of batches whose words a line looks up in a table. In `calls` sampled calls `padded` of `columns` were at
    the ends and had only the token `padding`, in each batch the share `least` or more. The widest batch had `width`
    columns, and none needed more than `widest`. `made` is the line that made one of them, where that was seen."""

    place: Place
    padding: int
    made: Place | None = None
    calls: int = 0
    columns: int = 0
    padded: int = 0
    least: float = 1.0
    width: int = 0
    widest: int = 0


Change = Literal["strides", "rank", "broadcast", "mask-shape", "causal", "widths", "groups", "mask-gradient", "dropout"]
"""What alone would let a fused implementation of attention take the operands: a last dimension with stride 1, four
dimensions, batch and heads of one size, a mask with the shape of the scores, `is_causal` in place of a mask that says
the same, values as wide as the queries, keys and values repeated by hand, a mask without a gradient, no dropout."""


class AttentionFallback(Record):
    """A line that calls `scaled_dot_product_attention`, which took its math implementation there in `calls` calls of
    `sampled` sampled steps; with one `change` it would have taken the one called `fused`.

    `math` and `changed` are the seconds of a step's calls, as they are and with the change made before each, measured
    after the run on made tensors of the shapes, strides and dtypes that are closest to the average; `backward` says
    that they include the backward pass. `operands` are those that the change is about, with their `shapes` and
    `strides`; `made` is the line that made the storage of the first. `inner` is the line outside torch that calls,
    where that is not the user's own.
    """

    place: Place
    change: Change
    fused: str
    math: float
    changed: float
    calls: int
    sampled: int
    backward: bool
    operands: list[str] = []
    shapes: list[tuple[int, ...]] = []
    strides: list[tuple[int, ...]] = []
    dtype: str = ""
    device: str = "cpu"
    inner: Place | None = None
    made: Place | None = None


class ComputedAgain(Record):
    """A function whose operators computed, in `steps` of `sampled` sampled steps, what they had computed in the same
    step or in the sampled step before it: from operands that had not changed, with the same result.

    `seconds` is what they took in all sampled steps: `within` of them for results that the same step had, `backward` in
    backward passes. `place` is the line, `operator` and `module` are those that took most of it. `inner` is the line in
    a library, where one of the user's calls it. `lines` are its lines, each with the share of the time of its operators
    that computed again. Of the `passes` seconds that all operators of backward passes took, `led_back` went through
    results that the same step had. `first_at` and `again_at` are the two lines of one function that led to nearly all
    of the results that a step had twice.
    """

    id: int
    place: Place
    operator: str
    seconds: float
    within: float
    backward: float
    calls: int
    steps: int
    sampled: int
    module: str | None = None
    inner: Place | None = None
    lines: list[tuple[int, float]] = []
    led_back: float = 0.0
    passes: float = 0.0
    first_at: Place | None = None
    again_at: Place | None = None


class SlidingWindow(Record):
    """A line that copies nearly all of what it has made before, to take in a little that is new: `copies` of its `made`
    results in `steps` sampled steps, each by `operator`, of `bytes` bytes, by the last.

    The copies took `seconds`, their kept part alone, of `all` seconds of the line's operators. Another operator had
    read `read` of the windows before the next copy. `kept` were still alive at the copy after that. `graph` carried an
    autograd graph. `grown` results are all that was there and more; `grown_read` of those had been read meanwhile.
    """

    id: int
    place: Place
    operator: str
    bytes: int
    steps: int
    made: int
    copies: int
    seconds: float
    all: float
    read: int = 0
    kept: int = 0
    graph: int = 0
    grown: int = 0
    grown_read: int = 0


class DenseTable(Record):
    """Tables of `rows` by `columns`, the first of them looked up on the line `place`, whose gradients have all rows:
    they were made `calls` times in `sampled` sampled steps, in `seconds`. No call of those that were counted (`looks`)
    looked up more than `touched` different rows.

    `optimizer` steps on them, on the line `step_place`; their elements are this `part` of all that are stepped on.
    `exact` says that this optimizer gives the same weights with a sparse gradient.
    """

    place: Place
    rows: int
    columns: int
    looks: int = 0
    touched: int = 0
    seconds: float = 0.0
    calls: int = 0
    sampled: int = 0
    optimizer: str = ""
    step_place: Place | None = None
    part: float = 0.0
    exact: bool = False


class DenormalState(Record):
    """An optimizer that steps on the line `place`: this `share` of its state was denormal when looked at last.

    `plain` and `flushed` are the seconds of an update of tensors made alike (`elements` in all), as it is and with
    `torch.set_flush_denormal(True)`, measured after the run.
    """

    name: str
    place: Place
    share: float
    elements: int
    plain: float
    flushed: float


Distance = Literal["squares", "root", "absolute"]
"""What differences are summed up to: their squares, the root of that, or their sizes."""


class PairDifferences(Record):
    """A line that makes a tensor of the differences of all pairs of `rows` (of the left operand and of the right one),
    each of `width` elements, of which nothing is used but a `distance`, summed up on the line `reduced`.

    `left` and `right` are the operands' shapes without what is repeated. The operators of `calls` such tensors in
    `sampled` sampled steps took `forward` and `backward` seconds, the latter by nodes of the autograd graph; all
    operators of these steps took `every`. `plain`, `product` and `subtracting` are the seconds of one call, with its
    backward pass where there was one, as it is, with the least work (by a matrix product, but for absolute
    differences), and by `torch.cdist` without a product: measured after the run on made tensors of these shapes, or of
    some of their rows. `mean` and `scaled` say that the sum is divided by the width, and that differences or squares
    are multiplied by what is the same for all pairs; `twice` that the backward pass is differentiated again. `inner` is
    the line in a library, where one of the user's calls it.
    """

    place: Place
    distance: Distance
    left: tuple[int, ...]
    right: tuple[int, ...]
    rows: tuple[int, int]
    width: int
    dtype: str
    calls: int
    sampled: int
    forward: float
    backward: float
    every: float
    plain: float
    product: float
    subtracting: float
    mean: bool = False
    scaled: bool = False
    autocast: bool = False
    twice: bool = False
    reduced: Place | None = None
    inner: Place | None = None


class PrefixComputedAgain(Record):
    """A line that calls a module, of the class `module`, with all columns of the call before and a few more: `calls`
    times in `steps` of `sampled` sampled steps, up to `row` times in a row. Of their `columns` `again` had been there
    in the call before.

    `compared` calls had an output for each column: in `same` of them those of the earlier columns had not changed.
    `timed` such calls took `seconds` in steps that were not sampled; without any, these are the seconds of the
    operators of `calls`. `saved` of them grow with the columns that were computed again.
    """

    id: int
    place: Place
    module: str
    row: int
    calls: int
    columns: int
    again: int
    steps: int
    sampled: int
    compared: int
    same: int
    timed: int
    seconds: float
    saved: float


Differentiated = Literal["", "summed", "each"]
"""Whether a backward pass goes through a result; if so, whether gradients are added up or those of each row used."""


class RowCalls(Record):
    """A line that calls a module once for each of `rows` rows, in `loops` loops of `sampled` sampled steps. `callers`
    are the lines that have called the line's function, innermost first.

    An iteration's operators took `one` seconds for one row, and `together` for `timed` rows at once by `torch.vmap`:
    measured after the run on made tensors of the same shapes. With gradients that are `summed` a backward pass is part
    of both; `late` is the share of the backward passes' seconds that went through such results after the loop.

    With `modules` these are that many modules of one shape, each called once in a loop: their calls count as rows, and
    all at once are one batched product of their weights.
    """

    place: Place
    module: str
    rows: int
    loops: int
    sampled: int
    one: float
    together: float
    timed: int
    differentiated: Differentiated = ""
    late: float = 0.0
    callers: list[Place] = []
    modules: int = 0


class RowsOneByOne(Record):
    """The loop on the line `place` reads batches of `rows` rows from that many `tensors` in memory, one row after the
    other; the loader is made on the line `made`, which makes loaders of such datasets `alone`.

    Tensors made alike took `each` seconds to be read so, and `at_once` by one index, measured after the run.
    """

    place: Place
    rows: int
    tensors: int
    each: float
    at_once: float
    made: Place | None = None
    alone: bool = True


class RowsSeenAgain(Record):
    """A frozen module, of the class `module`, that computed rows which it had computed in an earlier step, with the
    same results: `again` of `rows`, and `later_again` of the `later` rows in the later half of its calls.

    It was called at `places`, `calls` times without gradients in `steps` steps, `looked` of which were looked at; the
    calls took `seconds`, by those of steps that were not sampled. `distinct` rows, about, were different. What comes
    out for one has `row_bytes`. A module that changed after all has no rows any more.
    """

    id: int
    module: str
    places: list[Place]
    steps: int
    calls: int
    looked: int
    seconds: float
    rows: int
    again: int
    later: int
    later_again: int
    distinct: int
    row_bytes: int


class ThrownAway(Record):
    """A part of a line's backward passes that leads to the parameters of one optimizer alone: in `thrown` of `judged`
    passes its gradients were cleared before that optimizer stepped. `steps` are the sampled steps of those.

    `share` is the part's share of the seconds of all operators in backward passes of the line. `place` is the line that
    calls backward, `made` the one that makes what the rest of the graph is computed from; None where it is not known.
    """

    id: int
    place: Place
    made: Place | None
    optimizer: str
    optimizer_place: Place | None
    share: float
    judged: int
    thrown: int
    steps: int


class SortedForFew(Record):
    """The line `place` sorts `rows` rows of `size` elements, and only the first `few` of the order are used, or the
    `last` ones: so in each of `calls` calls in `sampled` sampled steps.

    The sorts took `seconds` of the `every` seconds of the line's operators. One call took `whole` seconds, and `topk`
    of as many `topk` seconds, measured after the run on made tensors of the same shape.
    """

    place: Place
    rows: int
    size: int
    few: int
    last: bool
    descending: bool
    dtype: str
    calls: int
    sampled: int
    seconds: float
    every: float
    whole: float
    topk: float
