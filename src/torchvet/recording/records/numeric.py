"""Records about numbers that are finite and wrong: poisoned buffers, losses without a path, half precision that stalls.

All but `Poisoned` are running totals: for one key (place, optimizer, kind) the last one written counts.
"""

from __future__ import annotations

from typing import Literal

from torchvet.recording.records.base import Place, Record
from torchvet.recording.records.scaling import EmptyStep

_HABIT = 3
"""Optimizer steps from which on something is no accident."""


class Poisoned(Record):
    """Tensors that last from step to step, not finite although every parameter of the trained modules is.

    They were finite when last looked at, at the boundary of tick `clean`, and were found at that of `tick`. `skipped`
    is the last step in between that a scaler skipped, or None. `place` is the line that wrote to them, or called the
    module in a sampled step; `call` the outermost call of a module there.
    """

    tick: int
    clean: int
    what: Literal["statistics", "buffer", "optimizer state", "copy"]
    names: list[str]
    count: int
    of: int
    """How many tensors of this kind were looked at."""
    nans: int = 0
    infinities: int = 0
    skipped: int | None = None
    owner: str = ""
    """The module's or optimizer's class."""
    recovered: int | None = None
    """The boundary at which all of them were finite again, if they were."""
    place: Place | None = None
    call: Place | None = None
    step_place: Place | None = None


class LostLoss(Record):
    """Backward passes from one line whose graph reaches no parameter of any optimizer.

    `root` says what the loss is: a leaf of its own, made of such leaves, made of leaves with more than one element
    (which may be what is trained by hand), or without any graph (backward raises).
    `lost` counts the optimizer steps, of `judged`, before which no other backward pass had run.
    """

    place: Place
    root: Literal["leaf", "other leaves", "larger leaves", "no graph"]
    shape: tuple[int, ...]
    dtype: str
    lost: int
    judged: int
    optimizer: str = ""
    parameters: int = 0
    """Those of the optimizers that require a gradient."""
    grad_enabled: bool = True
    made: Place | None = None
    """Where the tensor was made, if that was in a sampled step."""
    last: bool = False
    """Whether all backward passes since the last optimizer step were of this kind when the record was written."""

    @property
    def is_habit(self) -> bool:
        """Whether steps without any path to a parameter are no accident."""
        surely = self.root in ("leaf", "other leaves")
        return surely and self.lost >= _HABIT and self.lost >= 0.9 * self.judged

    def left_empty(self, ended: EmptyStep | None) -> bool:
        """Whether such passes are why no parameter at all had a gradient in the step by which the program ended."""
        whole = ended is not None and not ended.reached and ended.cleared is None and ended.passes > 0
        return whole and self.root != "no graph" and self.last


class CutOutput(Record):
    """What left autograd's graph on one line, by `detach()` or `item()`, and was all that most parameters led to.

    `above` parameters of the optimizers led to it; backward reached none but some of these and numbers and vectors
    beside them, and `missed` the most of them, in `lost` of `looks` sampled steps.

    In `seen` sampled steps what the stepping optimizer's parameters led to left there, and a term of the loss reached
    none of them, but `reached` parameters of others; in `idle` of these their gradients were cleared before any step.
    """

    place: Place
    looks: int = 0
    lost: int = 0
    above: int = 0
    missed: int = 0
    seen: int = 0
    idle: int = 0
    reached: int = 0

    @property
    def trains_nothing(self) -> bool:
        """Whether a term of the loss was for nothing in every step that was looked at."""
        return self.idle >= _HABIT and self.idle >= self.seen - 1  # of the last step the end was not seen

    @property
    def is_habit(self) -> bool:
        """Whether it was so in every step that was looked at."""
        return self.lost == self.looks >= _HABIT


class ConstantTerm(Record):
    """A number that `item()` took out of a graph was added, on the same line, to what backward then started from.

    `term` and `loss` are their magnitudes when last seen, `calls` the sampled steps in which it happened.
    """

    place: Place
    term: float
    loss: float
    calls: int


class HalfOptimizer(Record):
    """What steps on parameters in half precision changed, by samples of their elements.

    `updates` counts looked-at elements with a gradient that is not zero (and a learning rate that is not), `lost` those
    of them whose value was the same after the step. `followed` elements had such a gradient in every look, from `first`
    to the `last` step looked at; `stuck` of them had the same value throughout.
    """

    optimizer: str
    dtype: str
    steps: int
    place: Place | None = None
    step_place: Place | None = None
    parameters: int = 0
    """In half precision, of `of`."""
    of: int = 0
    eps: float | None = None
    fused: bool = False
    looks: int = 0
    updates: int = 0
    lost: int = 0
    followed: int = 0
    stuck: int = 0
    first: int = 0
    last: int = 0
    zero_gradients: int = 0
    """Looked-at elements whose gradient is zero: with an eps that vanishes their update is 0/0."""
    spoilt: int = 0
    """Parameters that a step made not finite although they and their gradients were finite before."""
    spoilt_at: int | None = None
    spoilt_names: list[str] = []


class HalfSum(Record):
    """A tensor in half precision that a line adds to, step after step.

    `moved` is the last boundary after which its sampled elements were seen to change; `stalled` of `elements` sampled
    ones stood still and had addends of less than half the distance to the next number, `coarse` ones addends of less
    than twice that distance: such an addition is off by up to a quarter. `value` and `addend` are of the element that
    stands for them, `spacing` the distance there. `grows` says that no look found it smaller than the one before.
    """

    place: Place
    dtype: str
    shape: tuple[int, ...]
    operator: str
    calls: int = 0
    looks: int = 0
    moved: int = 0
    tick: int = 0
    elements: int = 0
    stalled: int = 0
    coarse: int = 0
    value: float = 0.0
    addend: float = 0.0
    spacing: float = 0.0
    grows: bool = False


class VanishedConstant(Record):
    """A number that is not zero was added to, or put below, a tensor in whose dtype it is 0.

    `user` is the operator that then divided by, or took the root or logarithm of, the result; `zeros` counts the
    elements of all results that were 0 there, of `elements`.
    """

    place: Place
    operator: str
    user: str
    dtype: str
    constant: float
    calls: int = 0
    elements: int = 0
    zeros: int = 0


EXACT = {"float16": 2048, "bfloat16": 256}
"""Up to here a half dtype has every whole number; its binary digits are as many."""

DIGITS = {"float32": 1 << 24, **EXACT}
"""The same, with float32."""


class LostDifference(Record):
    """On one line large numbers were cast to `dtype`: `some` different ones of `what` became `left`, at numbers around
    `at`. Differences are those of neighbors. Of the call that shows most, of so many that were looked at.
    `subtracted` is the line that took differences of such numbers, most of them within a few steps of the type."""

    place: Place
    dtype: str
    what: str
    some: int
    left: int
    at: float
    calls: int = 1
    subtracted: Place | None = None


class PositionTable(Record):
    """A table that a `module` keeps in its `attribute`, `length` rows by position: `distinct` of them differ from the
    row before. All do up to the number from which on `dtype` has not every whole number. `place` is where the module's
    class runs it."""

    module: str
    attribute: str
    place: Place | None
    dtype: str
    length: int
    distinct: int


class HalfPositions(Record):
    """A range of numbers in half precision: `distinct` different ones in `length`."""

    place: Place
    dtype: str
    length: int
    converted: bool
    """Whether it was made in another dtype first."""
    distinct: int = 0
    largest: float = 0.0
    calls: int = 1


class SoftmaxAxis(Record):
    """On one line log-probabilities were made over dimension `dim` of `shape`, and the loss at `loss` took another one
    (`classes`) for that of the classes: sampled calls."""

    place: Place
    loss: Place | None
    shape: tuple[int, ...]
    dim: int
    classes: int
    calls: int = 0


class NormalizedBatch(Record):
    """On one line a softmax of `shape` went over dimension `dim`, which is that of the samples: sampled calls with a
    graph. `sizes` are how many samples there were, in evaluation as well; `loaded` says that a loader gave them."""

    place: Place
    shape: tuple[int, ...]
    dim: int
    calls: int = 0
    sizes: list[int] = []
    loaded: bool = False


class PenaltyNorm(Record):
    """On one line the norm was taken of gradients of `shape`, one for each of `samples` scores, over `dims`; a number
    was subtracted from the `norms` that it gave. Sampled calls."""

    place: Place
    shape: tuple[int, ...]
    dims: tuple[int, ...]
    samples: int
    norms: int
    target: float
    calls: int = 0


class GraphlessTerm(Record):
    """On one line a value was computed of what a model gives, without a graph although gradients were on, and added on
    the line `added` to a loss that went backward: sampled calls, in `zero` of which it was 0."""

    place: Place
    added: Place | None
    calls: int = 0
    zero: int = 0
    value: float = 0.0
    """The last one."""


class LatentSum(Record):
    """On one line, in a loss, a table of `numbers` was summed that an exponential or a logarithm is a summand of, as
    that of a KL divergence is: the `means` of its numbers in sampled `steps`, the latest looks."""

    place: Place
    numbers: int = 0
    steps: list[int] = []
    means: list[float] = []
    largest: float = 0.0
    """The largest of all looks, without its sign."""
