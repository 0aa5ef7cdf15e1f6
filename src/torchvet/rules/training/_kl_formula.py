"""Whether an expression is the KL divergence of a normal posterior from the standard normal, of each latent.

It is asked by numbers and not by how it is written: at a few values of the two quantities that it is made of it must be
the same multiple of `(mu ** 2 + exp(logvar) - 1 - logvar) / 2`. The other quantity may be the logarithm of a variance
or of a deviation, or one of these themselves.
"""

from __future__ import annotations

import ast
import math
import operator

from torchvet.rules.kit import Callable
from torchvet.source import model

_POINTS = ((0.7, 0.6), (1.3, 1.7), (0.4, 0.3))
_LOGS: tuple[Callable[[float], float], ...] = (lambda v: v, lambda v: 2 * v, math.log, lambda v: 2 * math.log(v))
"""How the logarithm of the variance follows from the second quantity."""
_NEAR = 1e-3
"""Formulas may add an epsilon."""
_OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_ONE = {
    "exp": math.exp,
    "log": math.log,
    "square": lambda v: v * v,
    "sqrt": math.sqrt,
    "neg": operator.neg,
}
_TWO = {
    "pow": operator.pow,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
}
_DEEPEST = 24
_FOLLOWED = 2
"""Names that are looked through, one behind the other."""


class _NoFormulaError(Exception):
    """What is no arithmetic of two quantities."""


class _Values:
    """The quantities of a formula, by how they are written, with the values that they are given in turn."""

    def __init__(self, followed: int) -> None:
        self.followed = followed
        self.names: list[str] = []
        self.values: tuple[float, ...] = ()

    def of(self, node: ast.expr, event: model.Event) -> float:
        name = f"{ast.unparse(node)}@{_bound_at(node, event)}"
        if name not in self.names:
            self.names.append(name)
        if len(self.names) > 2:
            raise _NoFormulaError
        return self.values[self.names.index(name)]


def _bound_at(node: ast.expr, event: model.Event) -> int:
    """Which binding of a name is meant: the same name may hold another value later."""
    binding = event.binding_of(node.id) if isinstance(node, ast.Name) else None
    return -1 if binding is None else binding.index


def kl_factor(node: ast.expr, event: model.Event) -> float | None:
    """What the divergence of each latent is multiplied by in an expression; None for what is no such divergence."""
    if not isinstance(node, (ast.BinOp, ast.Call, ast.UnaryOp)):
        return None
    # A mean may itself be computed: names are looked through only as far as it takes.
    found = (_factor(node, event, _Values(followed)) for followed in range(_FOLLOWED + 1))
    return next((one for one in found if one is not None), None)


def _factor(node: ast.expr, event: model.Event, known: _Values) -> float | None:
    try:
        first = [_evaluated(node, event, known, values) for values in _POINTS]
        if len(known.names) != 2:
            return None
        # The other way round: the variance may stand first.
        second = [_evaluated(node, event, known, values[::-1]) for values in _POINTS]
    except (_NoFormulaError, ArithmeticError, ValueError):
        return None
    found = [ratio for values in (first, second) for log in _LOGS if (ratio := _ratio(values, log)) is not None]
    return found[0] if found else None


def _ratio(values: list[float], log: Callable[[float], float]) -> float | None:
    divergences = [(mean**2 + math.exp(lv) - 1 - lv) / 2 for mean, lv in ((m, log(v)) for m, v in _POINTS)]
    ratios = [value / divergence for value, divergence in zip(values, divergences, strict=True)]
    return ratios[0] if ratios[0] and all(abs(r / ratios[0] - 1) < _NEAR for r in ratios) else None


def _evaluated(node: ast.expr, event: model.Event, known: _Values, values: tuple[float, ...]) -> float:
    known.values = values
    return _value(node, event, known, 0, known.followed)


def _real(value: object) -> float:
    """A root of a negative number is complex."""
    if not isinstance(value, (int, float)):
        raise _NoFormulaError
    return float(value)


def _value(node: ast.expr, event: model.Event, known: _Values, depth: int, followed: int) -> float:
    if depth > _DEEPEST:
        raise _NoFormulaError
    number = literal(node)
    if number is not None:
        return number
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, event, known, depth + 1, followed)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left = _value(node.left, event, known, depth + 1, followed)
        return _real(_OPERATIONS[type(node.op)](left, _value(node.right, event, known, depth + 1, followed)))
    if isinstance(node, ast.Call):
        return _of_call(node, event, known, depth, followed)
    if isinstance(node, ast.Name) and followed:
        binding = event.binding_of(node.id)
        value = model.value_bound(binding.node, node.id) if binding is not None and event.is_own(node) else None
        if binding is not None and value is not None and _is_arithmetic(value):
            return _value(value, binding, known, depth + 1, followed - 1)
    return known.of(node, event)


def _of_call(node: ast.Call, event: model.Event, known: _Values, depth: int, followed: int) -> float:
    name, on = model.terminal(node).removesuffix("_"), model.operand(event.unit.file, node)
    if on is None or not _is_arithmetic(node):
        return known.of(node, event)
    value = _value(on, event, known, depth + 1, followed)
    if name in _ONE:
        return _real(_ONE[name](value))
    return _real(_TWO[name](value, _value(node.args[-1], event, known, depth + 1, followed)))


def _is_arithmetic(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        name = model.terminal(node).removesuffix("_")
        # `torch.exp(x)` and `x.exp()`.
        return not node.keywords and (name in _ONE or (name in _TWO and bool(node.args)))
    return isinstance(node, (ast.BinOp, ast.UnaryOp))


def literal(node: ast.expr | None) -> float | None:
    """The number that an expression of plain numbers is."""
    if isinstance(node, ast.Constant):
        return float(node.value) if type(node.value) in (int, float) else None  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = literal(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
        left, right = literal(node.left), literal(node.right)
        if left is None or right is None:
            return None
        return left * right if isinstance(node.op, ast.Mult) else left / right if right else None
    return None


def squared_difference(node: ast.expr) -> bool:
    """Whether an expression squares a difference, or takes its absolute value: `(x_hat - x) ** 2`."""
    base: ast.expr | None = None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and literal(node.right) == 2:
        base = node.left
    elif model.is_call(node, "pow", "square", "abs"):
        base = model.receiver(node) if not model.is_name(model.receiver(node), "torch") else None
        base = base if base is not None else node.args[0] if node.args else None
    return isinstance(base, ast.BinOp) and isinstance(base.op, ast.Sub)
