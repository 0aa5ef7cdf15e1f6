"""Records about values that are not finite: NaN or an infinity where finite ones went in."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchvet.recording.records.base import Place, Record

Reason = Literal[
    "overflow", "division-by-zero", "zero-by-zero", "log-of-zero", "log-of-negative", "root-of-negative",
    "root-gradient-at-zero", "norm-gradient-at-zero", "power-gradient-at-zero", "domain", "masked-row",
    "empty-reduction", "single-sample", "inf-minus-inf", "inf-times-zero", "where-branch", "bad-data", "bad-parameter",
    "bad-buffer", "bad-state", "no-alignment", "masked-sum", "equal-values", "unknown",
]  # fmt: skip
"""Why an operator made something that is not finite.

`overflow`: a finite result does not fit its dtype. `domain`: outside the function's domain (acos, atanh...).
`where-branch`: the gradient of a branch that `torch.where` did not take. The `bad-*` reasons have no operator: what
went in was not finite already (a batch, a parameter, a buffer, a state carried from step to step). `no-alignment`: a
CTC loss of a target that is longer than its input. `masked-sum`: an infinity that was written as a mask is among what
is added up. `equal-values`: the backward of a decomposition divides by the difference of two equal eigenvalues.
"""


class Operand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a tensor held. Magnitudes are of the finite elements; `smallest` is the smallest that is not zero."""

    dtype: str
    shape: tuple[int, ...]
    largest: float = 0.0
    smallest: float = 0.0
    zeros: int = 0
    negatives: int = 0
    nans: int = 0
    infinities: int = 0
    name: str | None = None
    """A parameter's, buffer's or variable's name, where known."""
    at: float | None = None
    """Its value at the first element of the result that is not finite, where the operator goes element by element."""


class Held(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Numbers that the program keeps and that are not finite, in a place that a batch may come from: an attribute of an
    object of class `owner`, or a variable (`is_variable`) of the function `owner`, in the file `path`.

    `operand` has its shape, and how many of its elements are not finite in all. `name` leads to the first of them.
    """

    owner: str
    attribute: str
    name: str
    operand: Operand
    is_variable: bool = False
    path: str = ""
    line: int = 0
    """Of a variable: the line at which its function stood."""
    first: list[int] = []
    """The index of the first element that is not finite, in what `name` names."""
    rows: list[int] = []
    """The first few rows (of a list: items) that have any, of `of` rows."""
    of: int = 0
    of_items: bool = False
    """Whether rows are items of a list, each with numbers of its own."""
    columns: list[int] = []
    """Indices along the last dimension that have any, a few."""
    fills: bool = False
    """Whether they are all that there is along some dimension: a whole column, or a whole row."""
    same: bool = False
    """Whether the batch has the very values that stand there beside them."""


class DataOrigin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a batch comes from that was not finite when the program got it.

    `read` is where the dataset makes an item, `collated` the program's own function that makes a batch of items.
    `complete` says that all that the dataset holds was looked at. `variable` is a batch of no loader by the name that
    it has, in the function and at the line of `bound`.
    """

    dataset: str = ""
    read: Place | None = None
    collated: Place | None = None
    held: list[Held] = []
    complete: bool = True
    variable: str = ""
    bound: Place | None = None


class NonFinite(Record):
    """The first operator of a step that made NaN or an infinity from finite operands, found by a replay, or live.

    `tick` is the step's number and `symptom` what gave it away. `place` is the user's line: for an operator of the
    backward pass the line of the forward operator that it belongs to. `found` is "operator", or that something was
    bad before any operator ran, or that the replay did not show it again (`note` says why). `survives` says for other
    dtypes whether the same operator on the same operands gives finite results in them.
    """

    tick: int
    symptom: Literal["loss", "gradient", "parameter", "output", "number", "skipped"]
    found: Literal["operator", "input", "not-reproduced"]
    phase: Literal["forward", "backward"] = "forward"
    reason: Reason = "unknown"
    operator: str = ""
    node: str = ""
    """The autograd node that ran, for an operator of the backward pass (`SqrtBackward0`)."""
    place: Place | None = None
    inner: Place | None = None
    module: str | None = None
    operands: list[Operand] = []
    result: Operand | None = None
    argument: Operand | None = None
    """Of an operator of the backward pass: what the forward operator was given that its node belongs to."""
    rows: list[int] = []
    """Indices along the first dimension that are not finite; of bad data, those of the batch."""
    columns: list[int] = []
    """Of what was bad already: indices along the last dimension, where only some are, in every row."""
    survives: dict[str, bool] = {}
    whole: dict[str, bool] = {}
    """For other dtypes whether what failed is finite with every operator of the step computed in them."""
    wide_size: float | None = None
    """What failed, in float64 throughout: the loss, or the norm of all gradients."""
    autocast: str | None = None
    """The autocast dtype in force at the operator; `device` says whose lists of operators it goes by."""
    device: str = "cpu"
    scale: float | None = None
    """The loss scale of the step, where a scaler was at work: it skips such a step, healthy once in a while."""
    exact: bool = True
    """Whether the replay came to the very values of the run, as far as they could be compared."""
    since: int | None = None
    """For what was bad already: the first step that is known to have had it."""
    assigned: Place | None = None
    """For a bad buffer: the line that assigned it last, in step `since`."""
    origin: DataOrigin | None = None
    """For bad data: where it comes from, as far as that is known."""
    replay_seconds: float = 0.0
    note: str | None = None
    loop: dict[str, int] = {}
    """The program's own counters of the loops around it, outermost first: `tick` counts no step that it left out."""
    live: int | None = None
    """Where no replay showed it: how many of the passes (forward and backward) that followed were looked at as they
    ran, by the time of this record. It takes the place of the one that was written when step `failed` had failed."""
    failed: int | None = None


class NumberSamples(Record):
    """Losses and gradient norms at many steps since the record before; None stands for what is not finite.

    A loss is the single number that the step's first backward pass began from, a scaler's factor taken out. A norm is
    of all gradients that the step's first optimizer stepped with; there is none of those that are scaled.
    """

    loss_steps: list[int] = []
    losses: list[float | None] = []
    scales: list[float | None] = []
    """With each loss the factor of the scaler that it went through; None without one."""
    norm_steps: list[int] = []
    norms: list[float | None] = []


class NonFiniteTotals(Record):
    """Running totals, the last one counts: steps whose loss or gradients were not finite, and what became of them.

    `first_*` are steps; `stepped` counts optimizer steps taken with such gradients (the weights are lost from the
    first on), `skipped` those that a gradient scaler skipped, `trailing` how many of them the run ended with,
    `last_bad` is the last step with any of them.
    """

    tick: int
    losses: int = 0
    nan_losses: int = 0
    """Those that are NaN, and not infinite."""
    first_loss: int | None = None
    gradients: int = 0
    first_gradient: int | None = None
    stepped: int = 0
    first_stepped: int | None = None
    skipped: int = 0
    trailing: int = 0
    last_bad: int | None = None
    checked: int = 0
    """Steps whose loss or gradients were looked at."""
    outputs: int = 0
    """Steps of evaluation in which a model gave NaN, and a number that was taken was NaN too; of `passes` looked at."""
    passes: int = 0
    numbers: int = 0
    """Floating-point numbers that the program took after passes without gradients, in sampled steps."""
    nan_numbers: int = 0
    """Of those: NaN, taken where a replay has shown that it comes of the parameters, or where none could tell."""
    ruined: int = 0
    """Of those passes: in how many the model gave nothing but NaN."""
    left_out: int = 0
    """Losses that the program found NaN itself and went on without, in sampled steps."""
    skipping: int = 0
    """Batches without a backward pass where that was seen, from then on."""
    parameters: list[str] = []
    """Parameters that are not finite at the end, a few."""
