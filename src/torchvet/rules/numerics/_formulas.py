"""The unstable formulas that source can show, each with its stable twin."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.rules.numerics import _terms
from torchvet.rules.numerics.fixes import stable_forms
from torchvet.source.model import Event, receiver, terminal

_PICKING = {"gather", "take_along_dim", "index_select", "squeeze", "unsqueeze", "flatten", "view", "reshape"}
"""What gives some elements of a tensor, or all of them, as they are."""


@dataclass(frozen=True)
class Formula:
    """One found: `grave` where ordinary inputs make it fail, `twin` the text that replaces the whole expression."""

    event: Event
    node: ast.expr
    harm: str
    cause: str
    advice: str
    grave: bool = True
    only_gradient: bool = False
    twin: str = ""


def all_in(file: SourceFile) -> Iterator[Formula]:
    """Every formula of a file, once."""
    seen: set[int] = set()
    for found in (*_logarithms(file), *_quotients(file), *_roots(file)):
        if id(found.node) not in seen:
            seen.add(id(found.node))
            yield found


def _logarithms(file: SourceFile) -> Iterator[Formula]:
    if not file.mentions("softmax", "Softmax", "sigmoid", "Sigmoid", "exp("):
        return
    for event in file.calls("log", "log1p"):
        inner = _terms.is_call(event.node, file, event.unit, "log", "log1p")
        if inner is None:
            continue
        value, at = _terms.meaning(inner, event)
        found = _of_log(event, value, at)
        if found is not None:
            yield found


def _of_log(event: Event, value: ast.expr, at: Event) -> Formula | None:
    file, node, one_more = event.unit.file, event.call, terminal(event.node) == "log1p"
    text = file.segment
    inner = value
    value, at = _picked_of(value, at)
    if not one_more and _is_softmax(value, at, "softmax"):
        return Formula(event, node, "a probability that underflows to 0 gives -inf", "softmax rounds small "
                       "probabilities to 0 first", "use log_softmax", twin=_log_softmax(node, value, at))  # fmt: skip
    if not one_more and _is_softmax(value, at, "sigmoid"):
        twin = stable_forms.log_sigmoid(node, value, at) if value is inner else ""
        return Formula(event, node, "-inf from -89 on", "sigmoid underflows to 0 before the logarithm",
                       "use torch.nn.functional.logsigmoid", twin=twin)  # fmt: skip
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub) and _is_one(value.left) and not one_more:
        right, where = _terms.meaning(value.right, at)
        if _is_softmax(right, where, "sigmoid"):
            return Formula(event, node, "-inf from 17 on", "the sigmoid rounds to 1 before it is subtracted from 1",
                           "use torch.nn.functional.logsigmoid of the negated logits")  # fmt: skip
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and not one_more:
        return _of_sum_under_log(event, node, value, at)
    if one_more or terminal(value) == "sum":
        of = _exponent(value, at) if one_more else _summed_exponent(value, at)
        if of is not None:
            name = "softplus" if one_more else "logsumexp"
            twin = (
                stable_forms.softplus(node, of, event) if one_more else stable_forms.log_sum_exp(node, value, of, event)
            )
            return Formula(event, node, f"inf where {text(of)} exceeds 88.7", "exp overflows before the logarithm",
                           f"use {'torch.nn.functional.' if one_more else 'torch.'}{name}",
                           twin=twin if value is inner else "")  # fmt: skip
    return None


def _of_sum_under_log(event: Event, node: ast.Call, value: ast.BinOp, at: Event) -> Formula | None:
    """`log(1 + exp(x))`, `log(softmax(x) + eps)`."""
    for one, other in ((value.left, value.right), (value.right, value.left)):
        if _is_one(one) and (of := _exponent(other, at)) is not None:
            return Formula(event, node, f"inf where {event.unit.file.segment(of)} exceeds 88.7",
                           "exp overflows before the logarithm", "use torch.nn.functional.softplus",
                           twin=stable_forms.softplus(node, of, event))  # fmt: skip
        small = _terms.number(one, at.unit)
        inner, where = _terms.meaning(other, at)
        if small is not None and 0 < small < 1e-3 and _is_softmax(inner, where, "softmax"):
            return Formula(event, node, f"eps bounds the loss at {event.unit.file.segment(one)} and hides its gradient",
                           "probabilities below eps all count as eps", "use log_softmax, with no eps",
                           grave=False)  # fmt: skip
    return None


def _log_softmax(node: ast.Call, value: ast.expr, at: Event) -> str:
    """`torch.log(F.softmax(x, dim=1))` as `F.log_softmax(x, dim=1)`; empty where it is not written in one piece."""
    file = at.unit.file
    within = node.args[0] if node.args else receiver(node)
    if within is not value or not isinstance(value, ast.Call) or len(node.args) > 1 or node.keywords:
        return ""
    if not isinstance(value.func, ast.Attribute) or value.func.attr != "softmax" or "\n" in _source(file, value):
        return ""
    written = _source(file, value)
    head = _source(file, value.func)
    return f"{head[: -len('softmax')]}log_softmax{written[len(head) :]}"


def _picked_of(value: ast.expr, at: Event) -> tuple[ast.expr, Event]:
    """What elements are picked of: `softmax(x).gather(1, y).squeeze(1)` holds probabilities of a softmax too."""
    while True:
        inner: ast.expr | None = value.value if isinstance(value, ast.Subscript) else None
        if isinstance(value, ast.Call) and terminal(value) in _PICKING:
            inner = _terms.is_call(value, at.unit.file, at.unit, terminal(value))
        if inner is None:
            return value, at
        value, at = _terms.meaning(inner, at)


def _source(file: SourceFile, node: ast.expr) -> str:
    return ast.get_source_segment(file.text, node) or "\n"


def _is_softmax(node: ast.expr, event: Event, name: str) -> bool:
    """Whether an expression is a softmax (or sigmoid): a function, a method, or a module of it."""
    file = event.unit.file
    if not isinstance(node, ast.Call):
        return False
    if terminal(node) == name and _terms.is_call(node, file, event.unit, name) is not None:
        return True
    made = [node.func] if isinstance(node.func, ast.Call) else [v for v, _ in file.roles.values(node.func, event.unit)]
    wanted = f"torch.nn.{name.capitalize()}"
    return bool(made) and all(isinstance(m, ast.Call) and file.dotted(m.func) == wanted for m in made)


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _exponent(node: ast.expr, event: Event) -> ast.expr | None:
    """`x` of `exp(x)`; None where the maximum was taken off, or where it cannot be large."""
    node, at = _terms.meaning(node, event)
    of = _terms.is_call(node, at.unit.file, at.unit, "exp")
    if of is None:
        return None
    inner, _ = _terms.meaning(of, at)
    for one in (of, inner):
        if _terms.mentions(
            one, "max", "abs", "logsumexp", "clamp", "clip", "lse", "log_", "logp", "norm", "logsoftmax"
        ):
            return None
        if isinstance(one, ast.UnaryOp) or _bounded(one):
            return None
    return of


def _bounded(node: ast.expr) -> bool:
    """A negated square or distance, or a tanh, never gets large."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Mult)):
        return _bounded(node.left) or _bounded(node.right)
    return isinstance(node, ast.UnaryOp) or terminal(node) in (
        "neg",
        "tanh",
        "sigmoid",
        "log_softmax",
        "clamp",
        "arange",
    )


def _summed_exponent(node: ast.expr, event: Event) -> ast.expr | None:
    """`x` of `exp(x).sum(…)` or `torch.sum(exp(x), …)`."""
    node, at = _terms.meaning(node, event)
    of = _terms.is_call(node, at.unit.file, at.unit, "sum")
    exponent = _exponent(of, at) if of is not None else None
    return None if exponent is None or _shifted(exponent, at) else exponent


def _shifted(node: ast.expr, event: Event) -> bool:
    """Whether something is taken off: the maximum, for all that can be told."""
    node, _ = _terms.meaning(node, event)
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
        if below is not None and above is not None and _terms.same(below, above):
            yield Formula(event, quotient, f"inf/inf where {file.segment(above)} exceeds 88.7",
                          "exp overflows before the division", "use torch.softmax",
                          twin=stable_forms.softmax(quotient, event.call, event))  # fmt: skip


def _roots(file: SourceFile) -> Iterator[Formula]:
    """The root of a sum of squares with nothing added: its gradient at 0 is NaN."""
    if not file.mentions("sqrt("):
        return
    for event in file.calls("sqrt"):
        inner = _terms.is_call(event.node, file, event.unit, "sqrt")
        if inner is None:
            continue
        value, at = _terms.meaning(inner, event)
        if _sum_of_squares(value, at) and file.gradients.carries(event.node, event) != "no":
            yield Formula(event, event.call, "its gradient at 0 is NaN", "sqrt has an infinite gradient at 0, "
                          "a square that of 0, and their product is NaN", "use torch.linalg.vector_norm, or add eps",
                          grave=False, only_gradient=True)  # fmt: skip


def _sum_of_squares(node: ast.expr, event: Event) -> bool:
    file, unit = event.unit.file, event.unit
    if isinstance(node, ast.Call) and file.dotted(node.func) == "torch.nn.functional.mse_loss":
        return True
    of = _terms.is_call(node, file, unit, "sum", "mean")
    if of is None:
        return False
    of, at = _terms.meaning(of, event)
    if isinstance(of, ast.BinOp) and isinstance(of.op, ast.Pow):
        return _terms.number(of.right, at.unit) == 2
    squared = _terms.is_call(of, file, at.unit, "square", "pow")
    if squared is None or not isinstance(of, ast.Call):
        return False
    return terminal(of) == "square" or _terms.number(of.args[-1], at.unit) == 2
