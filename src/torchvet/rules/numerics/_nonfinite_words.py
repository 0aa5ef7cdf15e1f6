"""How a value that is not finite is reported: what happened, why, and what to change, in the program's own names."""

from __future__ import annotations

import re

from torchvet.recording.records.nonfinite import NonFinite, Operand
from torchvet.rules.kit import About, Callable, Iterable, Iterator, count

ENDS = {"float16": 65504.0, "bfloat16": 3.39e38, "float32": 3.40e38, "float64": 1.80e308}
"""Greatest finite values."""
_MOST_ROWS = 8
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def settled(records: Iterable[NonFinite]) -> Iterator[NonFinite]:
    """Without those whose place another has taken: what a look at the steps after a failure has found, or not. Where
    one was found, a later failure at the same line that no look has shown says nothing new."""
    records = list(records)
    looked = {r.failed: r.found != "not-reproduced" for r in records if r.failed is not None}
    openings = [r for r in records if r.found == "not-reproduced" and r.failed is None and r.tick in looked]
    explained = {r.place for r in openings if looked[r.tick]}
    for record in records:
        shown = record.found != "not-reproduced"
        if shown or (record.place not in explained and not any(record is one for one in openings)):
            yield record


def step(record: NonFinite) -> str:
    """`step 21`, with the program's own counters where they say anything else."""
    own = list(record.loop.items())
    if not own or (len(own) == 1 and own[0][1] in (record.tick, record.tick - 1)):
        return f"step {record.tick}"
    return f"step {record.tick} ({', '.join(f'{name} = {value}' for name, value in own)})"


def operator(record: NonFinite) -> str:
    """`aten.log` as `log`, with the autograd node of a backward operator."""
    name = record.operator.removeprefix("aten.").partition(".")[0]
    if record.phase == "forward" or not record.node:
        return name
    return f"the backward of {_function(record.node)}"


def about(record: NonFinite) -> About:
    """The reason, and the operator that made it by its name in torch: of `SqrtBackward0` it is `sqrt`."""
    return About(record.reason, tuple(operator(record).split()[-1:]))


def _function(node: str) -> str:
    """`SqrtBackward0` as `sqrt`, `Log1PBackward0` as `log1p`."""
    name = node.rpartition("::")[2].rstrip("0123456789").removesuffix("Backward")
    return _WORD.sub("_", name).lower()


def what(record: NonFinite) -> str:
    """NaN, inf or -inf: what came out."""
    if record.result is None:
        return "a value that is not finite"
    return "NaN" if record.result.nans else "an infinity"


def named(operand: Operand | None, fallback: str = "its operand") -> str:
    """An operand by its name, else by its shape."""
    if operand is None or (not operand.name and not operand.shape):
        return fallback
    return operand.name or f"{fallback} {_form(operand)}"


def _form(operand: Operand) -> str:
    return f"({operand.dtype} {list(operand.shape)})"


def number(value: float) -> str:
    """Three significant digits."""
    return f"{value:.3g}"


def cause(record: NonFinite) -> str:
    """Why, from the figures of the operands; without them where the step that was done again had other values."""
    if record.found == "operator" and not record.exact and record.reason in _WITHOUT_FIGURES:
        return _WITHOUT_FIGURES[record.reason].format(what=_singular(record), dtype=_dtype(record))
    of_operands = _OF_OPERANDS.get(record.reason)
    if of_operands is not None:
        return of_operands(record) + _some_rows(record)
    if record.reason == "masked-row" and record.rows and record.exact:
        return f"{_CAUSES[record.reason]} (rows {_rows(record)})"
    if record.reason in _BAD:
        return _bad(record)
    return _CAUSES.get(record.reason) or _unknown(record)


def _some_rows(record: NonFinite) -> str:
    """Where only some rows of a batch went wrong, which ones."""
    length = record.result.shape[0] if record.result is not None and record.result.shape else 0
    if not 0 < len(record.rows) < length:
        return ""
    more = " and more" if len(record.rows) > _MOST_ROWS else ""
    return f"; in row{'s' if len(record.rows) > 1 else ''} {_rows(record)}{more} of {length}"


def _rows(record: NonFinite) -> str:
    return ", ".join(map(str, record.rows[:_MOST_ROWS]))


def _first(record: NonFinite) -> Operand | None:
    return record.operands[0] if record.operands else None


def _dtype(record: NonFinite) -> str:
    return record.result.dtype if record.result is not None else "the dtype"


def _overflow(record: NonFinite) -> str:
    dtype = _dtype(record)
    end = f", {dtype} ends at {number(ENDS[dtype])}" if dtype in ENDS else ""
    operands = [o for o in record.operands[:3] if o.dtype != "scalar" or o.largest]
    if operands and all(o.at is not None or o.dtype == "scalar" for o in operands):
        values = " and ".join(number(o.largest if o.at is None else o.at) for o in operands)
        kind = "operands" if len(operands) > 1 else "an operand"
        return f"{kind} of {values} {'give' if len(operands) > 1 else 'gives'} a result that does not fit {dtype}{end}"
    sizes = " and ".join(number(o.largest) for o in operands)
    return f"operands of up to {sizes or '?'} give a result that does not fit {dtype}{end}"


def _divisor(record: NonFinite) -> str:
    divisor = record.operands[-1] if record.operands else None
    if divisor is None:
        return "a division by 0"
    zeros = f"{divisor.zeros} zeros" if divisor.zeros > 1 else "a zero"
    both = "0 / 0 is NaN" if record.reason == "zero-by-zero" else "a division by 0 is infinite"
    name = divisor.name or "the divisor"
    return f"{name} has {zeros} {_form(divisor)}: {both}"


def _singular(record: NonFinite) -> str:
    """The function whose argument is at fault: `log1p`, also of its backward."""
    return operator(record).split()[-1].rstrip("_")


def _argument(record: NonFinite) -> str:
    """What the argument held that the function does not take."""
    given = _given(record)
    name = (given.name if given is not None else None) or "its argument"
    name = f"{name} {_form(given)}" if given is not None else name
    if record.reason == "log-of-zero":
        return f"{name} {_at_zero(record, given)}"
    if record.reason in ("log-of-negative", "root-of-negative"):
        point = _POINTS.get(_singular(record), 0)
        nans = record.result.nans if record.result is not None and record.phase == "forward" else 0
        return f"{name} is below {point} at {count(nans, 'element')}" if nans else f"{name} gets below {point}"
    return f"{name} {_outside(record, given)}"


def _given(record: NonFinite) -> Operand | None:
    """The argument of the function: of the backward pass the operands are others."""
    if record.argument is not None or record.phase != "forward":
        return record.argument
    return record.operands[-1] if record.reason.startswith("log") and record.operands else _first(record)


def _at_zero(record: NonFinite, given: Operand | None) -> str:
    of, forward = _singular(record), record.phase == "forward"
    point = _POINTS.get(of, 0)
    # In the backward pass the divisor is what is 0 there, by whatever amount it differs from the argument.
    below = record.operands[-1] if record.operands else None
    zeros = below.zeros if below is not None and (not forward or point == 0) else 0
    if not zeros and not forward and given is not None and given.at not in (None, point):
        return f"is {number(given.at or 0)} there, so close to {point} that the gradient of {of} is not finite"
    at = f"is {point} at {count(zeros, 'element')}" if zeros else f"reaches {point}"
    return f"{at}: {of}({point}) is -inf" + ("" if forward else ", and its derivative infinite")


def _outside(record: NonFinite, given: Operand | None) -> str:
    of, value = _singular(record), given.at if given is not None else None
    if value is None:
        return f"gets outside the domain of {of}, or to its edge"
    # What has a gradient was inside in the forward pass.
    inner = "outside" if record.phase == "forward" else "close to the edge of"
    return f"is {number(value)} there, {'at the edge of' if value in _EDGES.get(of, ()) else inner} the domain of {of}"


def _bad(record: NonFinite) -> str:
    held = record.result
    amount = f"{held.nans} NaN and {held.infinities} infinite" if held is not None else "some"
    since = f" since step {record.since}" if record.since is not None else ""
    if record.assigned is not None:
        return f"{named(held, 'a tensor')} has {amount} elements{_where(record)}{since}, when it was assigned anew"
    if record.reason == "bad-buffer" and record.since is None:
        since = ", when the step was done again: the failed step itself may have written it"
    return f"{named(held, 'a tensor')} has {amount} elements before any operator has run{_where(record)}{since}"


def _where(record: NonFinite) -> str:
    """Which rows, or which columns of every row."""
    if record.columns:
        shown = ", ".join(map(str, record.columns[:_MOST_ROWS]))
        return f", in column{'s' if len(record.columns) > 1 else ''} {shown} of every row"
    if _all_rows(record):
        return ", in every row"
    return f", in row{'s' if len(record.rows) > 1 else ''} {_rows(record)}" if record.rows else ""


def _all_rows(record: NonFinite) -> bool:
    """Whether no row is finite; of long tensors only the first rows are known."""
    shape = record.result.shape if record.result is not None else ()
    return (
        bool(shape) and len(record.rows) >= min(shape[0], _KNOWN_ROWS) and record.rows == list(range(len(record.rows)))
    )


def _unknown(record: NonFinite) -> str:
    if record.found == "not-reproduced":
        return record.note or "doing the step again did not show it"
    if not record.exact:
        return f"{operator(record)} made it from finite values"
    sizes = ", ".join(f"{named(o, 'operand')} up to {number(o.largest)}" for o in record.operands[:3])
    return f"{operator(record)} made it from finite values ({sizes})"


def _unaligned(record: NonFinite) -> str:
    return f"{record.note}: no path through it spells the target, and the loss is infinite"


_OF_OPERANDS: dict[str, Callable[[NonFinite], str]] = {
    "overflow": _overflow,
    **dict.fromkeys(("division-by-zero", "zero-by-zero"), _divisor),
    **dict.fromkeys(("log-of-zero", "log-of-negative", "root-of-negative", "domain"), _argument),
    "no-alignment": _unaligned,
}
_WITHOUT_FIGURES = {
    "overflow": "a result does not fit {dtype}",
    "division-by-zero": "a divisor is 0: a division by 0 is infinite",
    "zero-by-zero": "a divisor is 0: 0 / 0 is NaN",
    "log-of-zero": "an argument of {what} is where it is -inf",
    "log-of-negative": "an argument of {what} is below its domain",
    "root-of-negative": "an argument of {what} is negative",
    "domain": "an argument of {what} is outside its domain, or at its edge",
    "no-alignment": "a target is longer than its input: no path spells it, and the loss is infinite",
}
"""What is known of a step that was done again with other values: that it goes wrong here, and how."""
_POINTS = {"log1p": -1, "xlog1py": -1, "special_xlog1py": -1}
"""Where a logarithm is -inf, if not at 0."""
_EDGES = {
    **dict.fromkeys(("acos", "asin", "arccos", "arcsin", "atanh", "erfinv"), (-1.0, 1.0)),
    "acosh": (1.0,),
    **dict.fromkeys(("logit", "special_ndtri"), (0.0, 1.0)),
}
_KNOWN_ROWS = 16
_CAUSES = {
    "root-gradient-at-zero": "the derivative of a root at 0 is infinite, and times a gradient of 0 NaN",
    "norm-gradient-at-zero": "the derivative of a norm at a vector of zeros does not exist",
    "power-gradient-at-zero": "the derivative of a power at 0 is infinite where the exponent is below 1",
    "masked-row": "every score of a row is -inf, and softmax divides 0 by 0 there",
    "empty-reduction": "nothing was there to be averaged: 0 / 0",
    "single-sample": "the spread of a single sample: it divides by n - 1 = 0",
    "inf-minus-inf": "an infinity met another of the opposite sign, or was divided by one",
    "inf-times-zero": "an infinity was multiplied by 0",
    "masked-sum": "an infinity that was written in as a mask is among what is added up here",
    "equal-values": "two of the eigenvalues or singular values are equal: the gradient of the vectors divides by their "
    "difference",
    "where-branch": "the branch not chosen has an infinite derivative, and times a gradient of 0 NaN",
}
_BAD = ("bad-data", "bad-parameter", "bad-buffer", "bad-state")
_NOTHING = "leave those elements out; `{name}.clamp(min=1e-6)` makes them 0, which has to be the right value there"
_APART = "leave those elements out, or choose for them with `torch.where`; a tiny bound below makes the result huge"
_ADVICE = {
    "division-by-zero": _APART,
    "zero-by-zero": _NOTHING,
    "log-of-zero": "use the stable form (log_softmax, logsigmoid, cross_entropy); a clamp keeps it finite, and gives "
    "no gradient where it clamps",
    "log-of-negative": "correct what makes {name} negative: a probability or a density is positive by its formula; a "
    "clamp hides the error, and gives a wrong value without a gradient",
    "root-of-negative": "correct what makes {name} negative, if more than rounding does: only then "
    "`{name}.clamp(min=0)` with an epsilon is right",
    "root-gradient-at-zero": "use `torch.linalg.vector_norm`, or add an epsilon under the root: `torch.sqrt(x + 1e-8)`",
    "norm-gradient-at-zero": "add an epsilon under the root: `(x.square().sum(-1) + 1e-8).sqrt()`",
    "power-gradient-at-zero": "add an epsilon to the base, or clamp it, before the power",
    "domain": "use a form without that edge (`atan2(sine, cosine)` for `acos(cosine)`, logits for `logit`); where a "
    "clamp to the inside of the domain is used, look at the gradients that it leaves: they are large there",
    "masked-row": "leave rows out that are masked throughout, or keep one position unmasked in each",
    "empty-reduction": "skip the term where nothing is selected, or divide by `count.clamp(min=1)`",
    "single-sample": "use `correction=0`, with an eps where it is divided by, or skip the term for a single sample",
    "inf-minus-inf": "look at where the infinity comes from: mask with a large finite number instead",
    "inf-times-zero": "choose with `torch.where` or `masked_fill` instead of multiplying by a mask of 0 and 1",
    "masked-sum": "leave the masked elements out of the sum: add up only the others, or put 0 in their place before",
    "equal-values": "use a form that needs no vectors (`linalg.cholesky` to whiten, `eigvalsh` for values alone); or "
    "make the values differ before, by more than rounding takes away",
    "where-branch": "make the argument safe before the function: `f(torch.where(ok, x, 1.0))`, then choose",
    "bad-data": "find where it is computed or read: `assert torch.isfinite({name}).all()` after each step of "
    "that; where values are missing by nature, leave them out of the loss",
    "no-alignment": "leave such samples out, or `zero_infinity=True`; if there are many, pool less along the input",
    "bad-parameter": "find the first step that made the parameter bad; no later step can repair it",
    "bad-buffer": "reset the buffer; a step that was skipped has written it all the same",
    "bad-state": "reset the state that is carried from step to step when a step goes wrong",
}


def advice(record: NonFinite) -> str:
    """What to change."""
    if record.reason == "overflow":
        return _against_overflow(record)
    if record.whole.get("float32") and rounded(record):
        return _AGAINST_ROUNDING
    if record.reason == "bad-data" and record.columns:
        return f"{_OF_COLUMNS}; dropping rows does not help: every row has it"
    divisor = record.operands[-1] if record.reason in ("division-by-zero", "zero-by-zero") and record.operands else None
    if record.assigned is not None:
        return "follow what this line calls, with the values of this step: what it gives is not finite"
    name = named(record.result, "it")
    if record.found == "operator":
        name = named(divisor or _first(record), "its argument")
    if " " in name:
        name = "divisor" if divisor is not None else "x"
    return _ADVICE.get(record.reason, "check the operands of this operation").format(name=name)


def _against_overflow(record: NonFinite) -> str:
    fits = [d for d in ("bfloat16", "float32", "float64") if record.survives.get(d)]
    if record.result is not None and record.result.dtype == "float16" and fits:
        more = " (bfloat16 would do)" if "bfloat16" in fits else ""
        return f"compute this operation in float32: `.float()` before it, autocast disabled around it{more}"
    if _singular(record) in ("exp", "exp2", "expm1", "cosh", "sinh"):
        return (
            "bound the argument before the function: `x.clamp(max=...)` where a branch is not taken anyway, the "
            "maximum subtracted where only ratios count, `logsumexp` or `softplus` for a logarithm of it"
        )
    return "make the operands smaller: normalise what comes before, or lower the learning rate"


def rounded(record: NonFinite) -> bool:
    """Whether rounding before the operator made its operands what they are: the step is finite in a wider dtype
    throughout, and the operator alone is not."""
    return any(fine and not record.survives.get(dtype, True) for dtype, fine in record.whole.items())


_AGAINST_ROUNDING = (
    "compute what leads here in float32: `.float()` before the first operation that rounds too much, not at this one, "
    "or use a form that does not cancel (logsigmoid, log_softmax, expm1)"
)
_OF_COLUMNS = (
    "find out where the column is computed: a column that is constant has no spread to be divided by, and one that is "
    "missing has no values"
)


def survival(record: NonFinite) -> str | None:
    """Which dtypes would have done: for the same operator on the same operands, else for the whole step."""
    if not record.survives or record.result is None:
        return None
    if rounded(record):
        good = [d for d, fine in record.whole.items() if fine]
        return f"computed in {' or '.join(good)} from the start of the step on, it is finite: its operands were rounded"
    mine = record.result.dtype
    good = [d for d, fine in record.survives.items() if fine and d != mine]
    if good:
        return f"the same operation on the same operands is finite in {', '.join(good)}"
    if record.whole.get("float64") is False:
        return "the step is not finite in float64 either: the dtype is not to blame"
    return "the same operation on the same operands is not finite in float64 either"
