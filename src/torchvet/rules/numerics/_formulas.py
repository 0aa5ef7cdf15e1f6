"""The unstable formulas that source can show, each with its stable twin."""

from __future__ import annotations

import ast
from typing import NamedTuple

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.rules.numerics import _terms
from torchvet.rules.numerics._ranges import all_of, is_choice, is_limited, is_logit, is_lowered, unscaled
from torchvet.rules.numerics.fixes import stable_forms
from torchvet.source.model import Event, given, is_call, name_set, receiver, terminal

_PICKING = name_set("gather take_along_dim index_select squeeze unsqueeze flatten view reshape")
"""What gives some elements of a tensor, or all of them, as they are."""
_BOUNDED = ("neg", "tanh", "sigmoid", "log_softmax", "clamp", "arange")
"""What never gets large."""
_SHIFTED = ("max", "abs", "logsumexp", "clamp", "clip", "lse", "log_", "logp", "norm", "logsoftmax")
"""Parts of names that say that the maximum was taken off, or that something is bounded."""


class Form(NamedTuple):
    """An unstable form in words; `{of}` stands for the part that decides. It is grave where ordinary inputs fail."""

    harm: str
    cause: str
    advice: str
    grave: bool = True
    only_gradient: bool = False


_LOG_SOFTMAX = Form(
    "a probability that underflows to 0 gives -inf",
    "softmax rounds small probabilities to 0 first",
    "use log_softmax",
)
_LOG_SIGMOID = Form(
    "-inf from -89 on", "sigmoid underflows to 0 before the logarithm", "use torch.nn.functional.logsigmoid"
)
_LOG_ONE_MINUS_SIGMOID = Form(
    "-inf from 17 on",
    "the sigmoid rounds to 1 before it is subtracted from 1",
    "use torch.nn.functional.logsigmoid of the negated logits",
)
_LOG_EPS = Form(
    "eps bounds the loss at {of} and hides its gradient",
    "probabilities below eps all count as eps",
    "use log_softmax, with no eps",
    grave=False,
)
_SOFTPLUS = Form(
    "inf where {of} exceeds 88.7", "exp overflows before the logarithm", "use torch.nn.functional.softplus"
)
_LOG_SUM_EXP = _SOFTPLUS._replace(advice="use torch.logsumexp")
_SOFTMAX = Form("inf/inf where {of} exceeds 88.7", "exp overflows before the division", "use torch.softmax")
_ROOT = Form(
    "its gradient at 0 is NaN",
    "sqrt has an infinite gradient at 0, a square that of 0, and their product is NaN",
    "use torch.linalg.vector_norm, or add eps",
    grave=False,
    only_gradient=True,
)


class Formula(NamedTuple):
    """One found: `of` is the part that decides, `twin` the text that replaces the whole expression, if one can."""

    event: Event
    node: ast.expr
    form: Form
    of: ast.expr | None = None
    twin: str = ""

    @property
    def harm(self) -> str:
        """What goes wrong, in the program's own words."""
        return self.form.harm.format(of=self.event.unit.file.segment(self.of) if self.of is not None else "")


def all_in(file: SourceFile) -> Iterator[Formula]:
    """Every formula of a file, once."""
    seen: set[int] = set()
    for found in (*_logarithms(file), *_quotients(file), *_roots(file)):
        if id(found.node) not in seen:
            seen.add(id(found.node))
            yield found


class _Log(NamedTuple):
    """A logarithm and its argument as it stands there (`written`); `value` is what its elements were picked of."""

    event: Event
    written: ast.expr
    value: ast.expr
    at: Event

    def found(self, form: Form, of: ast.expr | None = None, twin: str = "") -> Formula:
        """A twin replaces only what is written in one piece."""
        return Formula(self.event, self.event.call, form, of, twin if self.value is self.written else "")


def _logarithms(file: SourceFile) -> Iterator[Formula]:
    if not file.mentions("softmax", "Softmax", "sigmoid", "Sigmoid", "exp("):
        return
    for event in file.calls("log", "log1p"):
        inner = _terms.operand_of(file, event.node, "log", "log1p")
        if inner is not None:
            written, at = _terms.meaning(inner, event)
            # A name in between, and what picks elements, are looked through: the formula is the same.
            value, there, indices = _picked_of(written, at)
            log = _Log(event, written, value, there)
            found = _of_log1p(log) if terminal(event.node) == "log1p" else _of_log(log)
            if found is not None and not any(is_choice(index, where) for index, where in indices):
                yield found


def _of_log(log: _Log) -> Formula | None:
    value, at = log.value, log.at
    if is_softmax(value, at, "softmax"):
        return Formula(log.event, log.event.call, _LOG_SOFTMAX, twin=_log_softmax(log.event.call, value, at))
    if is_softmax(value, at, "sigmoid"):
        return log.found(_LOG_SIGMOID, twin=stable_forms.log_sigmoid(log.event.call, value, at))
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub):
        one_minus = _is_one(value.left) and is_softmax(*_terms.meaning(value.right, at), "sigmoid")
        return log.found(_LOG_ONE_MINUS_SIGMOID) if one_minus else None
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return _of_sum_under_log(log, value)
    of = _summed_exponent(value, at) if terminal(value) == "sum" else None
    if of is None:
        return None
    return log.found(_LOG_SUM_EXP, of, stable_forms.log_sum_exp(log.event.call, value, of, log.event))


def _of_log1p(log: _Log) -> Formula | None:
    of = _exponent(log.value, log.at)
    return log.found(_SOFTPLUS, of, stable_forms.softplus(log.event.call, of, log.event)) if of is not None else None


def _of_sum_under_log(log: _Log, value: ast.BinOp) -> Formula | None:
    """`log(1 + exp(x))`, `log(softmax(x) + eps)`."""
    for one, other in ((value.left, value.right), (value.right, value.left)):
        of = _exponent(other, log.at) if _is_one(one) else None
        if of is not None:
            twin = stable_forms.softplus(log.event.call, of, log.event)
            return Formula(log.event, log.event.call, _SOFTPLUS, of, twin)
        small = _terms.number(one, log.at.unit)
        if small is not None and 0 < small < 1e-3 and is_softmax(*_terms.meaning(other, log.at), "softmax"):
            return log.found(_LOG_EPS, one)
    return None


def _log_softmax(node: ast.Call, value: ast.expr, at: Event) -> str:
    """`torch.log(F.softmax(x, dim=1))` as `F.log_softmax(x, dim=1)`; empty where it is not written in one piece."""
    within = node.args[0] if node.args else receiver(node)
    if within is not value or not is_call(value, "softmax") or len(node.args) > 1 or node.keywords:
        return ""
    if value.lineno != value.end_lineno or not isinstance(value.func, ast.Attribute):
        return ""
    written, head = at.unit.file.segment(value), at.unit.file.segment(value.func)
    return f"{head.removesuffix('softmax')}log_softmax{written[len(head) :]}"


def _picked_of(value: ast.expr, at: Event) -> tuple[ast.expr, Event, list[tuple[ast.expr, Event]]]:
    """What elements are picked of, and by which indices: `softmax(x).gather(1, y).squeeze(1)` holds probabilities of a
    softmax too."""
    indices: list[tuple[ast.expr, Event]] = []
    while True:
        inner = value.value if isinstance(value, ast.Subscript) else _terms.operand_of(at.unit.file, value, *_PICKING)
        if inner is None:
            return value, at, indices
        picks = [value.slice] if isinstance(value, ast.Subscript) else given(value)  # type: ignore[arg-type]
        indices += [(pick, at) for pick in picks if pick is not inner]
        value, at = _terms.meaning(inner, at)


def is_softmax(node: ast.expr, event: Event, name: str) -> bool:
    """Whether an expression is a softmax (or sigmoid): a function, a method, or a module of it."""
    file = event.unit.file
    if not isinstance(node, ast.Call):
        return False
    if _terms.operand_of(file, node, name) is not None:
        return True
    made = [node.func] if isinstance(node.func, ast.Call) else [v for v, _ in file.roles.values(node.func, event.unit)]
    wanted = f"torch.nn.{name.capitalize()}"
    return bool(made) and all(isinstance(m, ast.Call) and file.dotted(m.func) == wanted for m in made)


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _exponent(node: ast.expr, event: Event) -> ast.expr | None:
    """`x` of `exp(x)`; None where the maximum was taken off, or where it cannot be large."""
    node, at = _terms.meaning(node, event)
    of = _terms.operand_of(at.unit.file, node, "exp")
    if of is None:
        return None
    harmless = is_limited(of, event) or _harmless(of) or is_logit(of, at) or is_lowered(of, at, *_SHIFTED)
    return None if harmless or any(all_of(*one, _harmless) for one in ((of, at), unscaled(of, at))) else of


def _harmless(node: ast.expr) -> bool:
    return _terms.mentions(node, *_SHIFTED) or _bounded(node)


def _bounded(node: ast.expr) -> bool:
    """A negated square or distance, or a tanh, never gets large; nor does what is 0 wherever it was."""
    if is_call(node, "masked_fill") and len(node.args) == 2:
        return _terms.is_zero(node.args[1])
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Mult)):
        return _bounded(node.left) or _bounded(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        added = isinstance(node.right, ast.Constant) or is_call(node.right, "float")  # a margin
        return added and _bounded(node.left)
    return isinstance(node, ast.UnaryOp) or terminal(node) in _BOUNDED


def _summed_exponent(node: ast.expr, event: Event) -> ast.expr | None:
    """`x` of `exp(x).sum(…)` or `torch.sum(exp(x), …)`."""
    node, at = _terms.meaning(node, event)
    of = _terms.operand_of(at.unit.file, node, "sum")
    exponent = _exponent(of, at) if of is not None else None
    return None if exponent is None or _shifted(exponent, at) else exponent


def _shifted(node: ast.expr, event: Event) -> bool:
    """Whether something is taken off: the maximum, for all that can be told."""
    return all_of(*unscaled(node, event), _takes_off)


def _takes_off(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and not isinstance(node.right, ast.Constant)


def _quotients(file: SourceFile) -> Iterator[Formula]:
    """`exp(x) / exp(x).sum()`: a softmax written by hand."""
    if not file.mentions("exp(") or not file.mentions("sum("):
        return
    for event in file.calls("sum"):
        quotient = event.parent
        if not (isinstance(quotient, ast.BinOp) and isinstance(quotient.op, ast.Div) and quotient.right is event.node):
            continue
        below, above = _summed_exponent(event.call, event), _exponent(quotient.left, event)
        # Only the same argument above and below makes it a softmax; another quotient of exponentials may be meant.
        if below is not None and above is not None and _terms.same(below, above):
            yield Formula(event, quotient, _SOFTMAX, above, stable_forms.softmax(quotient, event.call, event))


def _roots(file: SourceFile) -> Iterator[Formula]:
    """The root of a sum of squares with nothing added: its gradient at 0 is NaN."""
    if not file.mentions("sqrt("):
        return
    for event in file.calls("sqrt"):
        inner = _terms.operand_of(file, event.node, "sqrt")
        sums = inner is not None and _sum_of_squares(*_terms.meaning(inner, event))
        if sums and file.gradients.carries(event.node, event) != "no":
            yield Formula(event, event.call, _ROOT)


def _sum_of_squares(node: ast.expr, event: Event) -> bool:
    file = event.unit.file
    if isinstance(node, ast.Call) and file.dotted(node.func) == "torch.nn.functional.mse_loss":
        return True
    of = _terms.operand_of(file, node, "sum", "mean")
    if of is None:
        return False
    of, at = _terms.meaning(of, event)
    if isinstance(of, ast.BinOp) and isinstance(of.op, ast.Pow):
        return _terms.number(of.right, at.unit) == 2
    if not is_call(of, "square", "pow") or _terms.operand_of(file, of, "square", "pow") is None:
        return False
    return terminal(of) == "square" or _terms.number(of.args[-1], at.unit) == 2
