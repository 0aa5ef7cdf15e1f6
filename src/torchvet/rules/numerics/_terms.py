"""Small questions about expressions that numerics rules share: literals, what a name stands for, what is alike."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.rules.shared.half_precision import latest
from torchvet.source.model import Event, Unit, is_call, name_set, operand, terminal, value_bound, walk
from torchvet.source.statements import spans

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
LARGEST_ZERO = 2.0**-25
"""The largest number that float16 rounds to 0."""
_OTHER_LIBRARIES = name_set("np numpy math jnp jax tf scipy cupy mx")


def number(node: ast.expr | None, unit: Unit) -> float | None:
    """The number that an expression is: a literal, or a name or `self` attribute that is always that literal."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number(node.operand, unit)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant):
        return float(node.value) if type(node.value) in (int, float) else None  # type: ignore[arg-type]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return power(number(node.left, unit), number(node.right, unit))
    return _always(node, unit) if isinstance(node, (ast.Name, ast.Attribute)) else None


def _always(node: ast.Name | ast.Attribute, unit: Unit) -> float | None:
    """The literal that a name or `self` attribute is bound to, where it is bound once."""
    if isinstance(node, ast.Name):
        home = unit.home(node.id)
        if home is None or node.id in home.parameters or len(home.bindings.get(node.id, ())) != 1:
            return None
    values = unit.file.roles.values(node, unit)
    plain = len(values) == 1 and isinstance(values[0][0], (ast.Constant, ast.UnaryOp))
    return number(*values[0]) if plain else None


def is_zero(node: ast.expr) -> bool:
    """Whether an expression is a literal 0."""
    return isinstance(node, ast.Constant) and node.value == 0 and not isinstance(node.value, bool)


def power(base: float | None, exponent: float | None) -> float | None:
    """A power of two known numbers, where it is a modest one."""
    if base is None or exponent is None or abs(exponent) > 64 or abs(base) > 1e6 or base <= 0:
        return None
    return float(base**exponent)


def meaning(node: ast.expr, event: Event) -> tuple[ast.expr, Event]:
    """What a name surely holds at an event, with the event that bound it; another expression stands for itself."""
    for _ in range(3):
        if not event.is_own(node):
            break
        binding = latest(node.id, event)
        value = value_bound(binding.node, node.id) if binding is not None else None
        if binding is None or value is None:
            break
        node, event = value, binding
    return node, event


def operand_of(file: SourceFile, node: ast.AST, *names: str) -> ast.expr | None:
    """What a function of torch, or a tensor's method, of one of the names is applied to; None for everything else."""
    if not is_call(node, *names) or file.dotted(node.func).partition(".")[0] in _OTHER_LIBRARIES:
        return None
    return operand(file, node)


def same(left: ast.expr, right: ast.expr) -> bool:
    """Whether two expressions are written alike."""
    return ast.dump(left) == ast.dump(right)


def mentions(node: ast.expr, *words: str) -> bool:
    """Whether an identifier of an expression contains one of the words."""
    names = [terminal(n) for n in walk(node) if isinstance(n, (ast.Name, ast.Attribute))]
    return any(word in name for name in names for word in words)


def statements_with(file: SourceFile, pattern: re.Pattern[str]) -> Iterator[Event]:
    """Events that stand for simple statements on whose lines a pattern is found, one event a statement."""
    found: dict[int, Event] = {}
    for line in sorted({file.line_of(match.start()) for match in pattern.finditer(file.text)}):
        simple = (e for e in file.unit_at(line).events if isinstance(e.statement, _SIMPLE))
        for event in [e for e in simple if spans([e.statement], line)][-1:]:
            found.setdefault(id(event.statement), event)
    yield from found.values()
