"""How a value that is not finite is reported: what happened, why, and what to change, in the program's own names."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torchvet.recording.records.nonfinite import NonFinite, Operand
from torchvet.rules.kit import About, Iterator

ENDS = {"float16": 65504.0, "bfloat16": 3.39e38, "float32": 3.40e38, "float64": 1.80e308}
"""Greatest finite values."""
_MOST_ROWS = 8


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
    """`SqrtBackward0` as `sqrt`."""
    name = node.rpartition("::")[2].rstrip("0123456789").removesuffix("Backward")
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


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
    """Why, from the figures of the operands."""
    of_operands = _OF_OPERANDS.get(record.reason)
    if of_operands is not None:
        return of_operands(record) + _some_rows(record)
    if record.reason == "masked-row" and record.rows:
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


def _overflow(record: NonFinite) -> str:
    dtype = record.result.dtype if record.result is not None else "the dtype"
    sizes = " and ".join(number(o.largest) for o in record.operands[:3] if o.dtype != "scalar" or o.largest)
    end = f", {dtype} ends at {number(ENDS[dtype])}" if dtype in ENDS else ""
    return f"operands of up to {sizes or '?'} give a result that does not fit {dtype}{end}"


def _divisor(record: NonFinite) -> str:
    divisor = record.operands[-1] if record.operands else None
    if divisor is None:
        return "a division by 0"
    zeros = f"{divisor.zeros} zeros" if divisor.zeros > 1 else "a zero"
    both = "0 / 0 is NaN" if record.reason == "zero-by-zero" else "a division by 0 is infinite"
    name = divisor.name or "the divisor"
    return f"{name} has {zeros} {_form(divisor)}: {both}"


def _argument(record: NonFinite) -> str:
    first = record.operands[-1] if record.reason.startswith("log") and record.operands else _first(record)
    if first is None:
        return f"{operator(record)} outside its domain"
    name, form = first.name or "its argument", _form(first)
    if record.reason == "log-of-zero":
        return f"{name} has {first.zeros} zeros {form}: log(0) is -inf"
    if record.reason in ("log-of-negative", "root-of-negative"):
        return f"{name} has {first.negatives} negative elements {form}"
    return f"{name} reaches {number(first.largest)} {form}, outside the domain of {operator(record)} or at its edge"


def _bad(record: NonFinite) -> str:
    held = record.result
    amount = f"{held.nans} NaN and {held.infinities} infinite" if held is not None else "some"
    rows = f", in rows {_rows(record)}" if record.rows else ""
    since = f" since step {record.since}" if record.since is not None else ""
    return f"{named(held, 'a tensor')} has {amount} elements before any operator has run{rows}{since}"


def _unknown(record: NonFinite) -> str:
    if record.found == "not-reproduced":
        return record.note or "doing the step again did not show it"
    sizes = ", ".join(f"{named(o, 'operand')} up to {number(o.largest)}" for o in record.operands[:3])
    return f"{operator(record)} made it from finite values ({sizes})"


_OF_OPERANDS: dict[str, Callable[[NonFinite], str]] = {
    "overflow": _overflow,
    **dict.fromkeys(("division-by-zero", "zero-by-zero"), _divisor),
    **dict.fromkeys(("log-of-zero", "log-of-negative", "root-of-negative", "domain"), _argument),
}
_CAUSES = {
    "root-gradient-at-zero": "the derivative of a root at 0 is infinite, and times a gradient of 0 NaN",
    "norm-gradient-at-zero": "the derivative of a norm at a vector of zeros does not exist",
    "power-gradient-at-zero": "the derivative of a power at 0 is infinite where the exponent is below 1",
    "masked-row": "every score of a row is -inf, and softmax divides 0 by 0 there",
    "empty-reduction": "nothing was there to be averaged: 0 / 0",
    "single-sample": "the spread of a single sample: it divides by n - 1 = 0",
    "inf-minus-inf": "an infinity met another of the opposite sign, or was divided by one",
    "inf-times-zero": "an infinity was multiplied by 0",
    "where-branch": "the branch not chosen has an infinite derivative, and times a gradient of 0 NaN",
}
_BAD = ("bad-data", "bad-parameter", "bad-buffer", "bad-state")
_APART = "keep the divisor away from 0, e.g. `{name}.clamp(min=1e-6)`, or leave those elements out"
_ADVICE = {
    "division-by-zero": _APART,
    "zero-by-zero": _APART,
    "log-of-zero": "use the stable form (log_softmax, logsigmoid, cross_entropy), or `{name}.clamp(min=1e-6)`",
    "log-of-negative": "make {name} positive before the logarithm: clamp it, or predict its logarithm",
    "root-of-negative": "make {name} non-negative before the root, e.g. `{name}.clamp(min=0)` plus an epsilon",
    "root-gradient-at-zero": "use `torch.linalg.vector_norm`, or add an epsilon under the root: `torch.sqrt(x + 1e-8)`",
    "norm-gradient-at-zero": "add an epsilon under the root: `(x.square().sum(-1) + 1e-8).sqrt()`",
    "power-gradient-at-zero": "add an epsilon to the base, or clamp it, before the power",
    "domain": "clamp {name} to the inside of the domain, e.g. `.clamp(-1 + 1e-6, 1 - 1e-6)`",
    "masked-row": "leave rows out that are masked throughout, or keep one position unmasked in each",
    "empty-reduction": "skip the term where nothing is selected, or divide by `count.clamp(min=1)`",
    "single-sample": "use `correction=0`, with an eps where it is divided by, or skip the term for a single sample",
    "inf-minus-inf": "look at where the infinity comes from: mask with a large finite number instead",
    "inf-times-zero": "choose with `torch.where` or `masked_fill` instead of multiplying by a mask of 0 and 1",
    "where-branch": "make the argument safe before the function: `f(torch.where(ok, x, 1.0))`, then choose",
    "bad-data": "clean or drop these rows where the data is loaded: `assert torch.isfinite(x).all()` there",
    "bad-parameter": "find the first step that made the parameter bad; no later step can repair it",
    "bad-buffer": "reset the buffer; a step that was skipped has written it all the same",
    "bad-state": "reset the state that is carried from step to step when a step goes wrong",
}


def advice(record: NonFinite) -> str:
    """What to change."""
    if record.reason == "overflow":
        return _against_overflow(record)
    divisor = record.operands[-1] if record.reason in ("division-by-zero", "zero-by-zero") and record.operands else None
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
    return "make the operands smaller: subtract the maximum before exp, normalise, or lower the learning rate"


def survival(record: NonFinite) -> str | None:
    """Which dtypes would have done, for the same operator on the same operands."""
    if not record.survives or record.result is None:
        return None
    mine = record.result.dtype
    good = [d for d, fine in record.survives.items() if fine and d != mine]
    if good:
        return f"the same operation on the same operands is finite in {', '.join(good)}"
    return "the same operation is not finite in float64 either: the dtype is not to blame"
