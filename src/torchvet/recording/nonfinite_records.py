"""Records about values that are not finite: NaN or an infinity where finite ones went in."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchvet.recording.records import Place, Record

Reason = Literal[
    "overflow", "division-by-zero", "zero-by-zero", "log-of-zero", "log-of-negative", "root-of-negative",
    "root-gradient-at-zero", "norm-gradient-at-zero", "power-gradient-at-zero", "domain", "masked-row",
    "empty-reduction", "single-sample", "inf-minus-inf", "inf-times-zero", "where-branch", "bad-data", "bad-parameter",
    "bad-buffer", "bad-state", "unknown",
]  # fmt: skip
"""Why an operator made something that is not finite.

`overflow`: a finite result does not fit its dtype. `domain`: outside the function's domain (acos, atanh...).
`where-branch`: the gradient of a branch that `torch.where` did not take. The `bad-*` reasons have no operator: what
went in was not finite already (a batch, a parameter, a buffer, a state carried from step to step).
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


class NonFinite(Record):
    """The first operator of a step that made NaN or an infinity from finite operands, found by a replay.

    `tick` is the step's number and `symptom` what gave it away. `place` is the user's line: for an operator of the
    backward pass the line of the forward operator that it belongs to. `found` is "operator", or that something was
    bad before any operator ran, or that the replay did not show it again (`note` says why). `survives` says for other
    dtypes whether the same operator on the same operands gives finite results in them.
    """

    tick: int
    symptom: Literal["loss", "gradient", "parameter", "output"]
    found: Literal["operator", "input", "not-reproduced"]
    phase: Literal["forward", "backward"] = "forward"
    reason: Reason = "unknown"
    operator: str = ""
    place: Place | None = None
    inner: Place | None = None
    module: str | None = None
    operands: list[Operand] = []
    result: Operand | None = None
    rows: list[int] = []
    """Indices along the first dimension that are not finite; of bad data, those of the batch."""
    survives: dict[str, bool] = {}
    autocast: str | None = None
    """The autocast dtype in force at the operator."""
    scale: float | None = None
    """The loss scale of the step, where a scaler was at work: it skips such a step, healthy once in a while."""
    replay_seconds: float = 0.0
    note: str | None = None
