"""What branches and several bindings say of the range of a value."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Callable
from torchvet.rules.numerics import _terms
from torchvet.source.model import Event, given, value_bound
from torchvet.source.walking import Arm

_OVERFLOW = 88
"""The largest whole number whose exponential float32 holds."""
_ABOVE = (ast.Gt, ast.GtE)
_BELOW = (ast.Lt, ast.LtE)


def all_of(node: ast.expr, event: Event, holds: Callable[[ast.expr], bool]) -> bool:
    """Whether something holds for whatever a name may stand for at an event: its one value, the values that all arms of
    a branch give it, or what a lambda that is called at once is given for it."""
    value, at = _terms.meaning(node, event)
    values = [value] if not isinstance(value, ast.Name) else (_by_arms(value.id, at) or _given_for(value.id, at))
    return bool(values) and all(map(holds, values))


def _by_arms(name: str, event: Event) -> list[ast.expr]:
    """The values of a name that is bound in every arm of a branch before an event; none where a way passes them by."""
    values: list[ast.expr] = []
    open_ways: set[tuple[Arm, ...]] = set()
    for binding in reversed(event.bindings_before(name)):
        value = value_bound(binding.node, name)
        if value is None:
            return []
        way = tuple(arm for arm in binding.context.arms if arm not in event.context.arms)
        if any(way[: len(other)] == other for other in open_ways):
            continue  # the same arm binds it anew after this
        values.append(value)
        open_ways.add(way)
        if () in _joined(open_ways):
            return values
    return []


def _joined(ways: set[tuple[Arm, ...]]) -> set[tuple[Arm, ...]]:
    """Ways, with that to a branch for those through both of its arms."""
    found = set(ways)
    for way in sorted(ways, key=len, reverse=True):
        while way and way in found and isinstance(way[-1][0], ast.If):
            branch, arm = way[-1]
            if (*way[:-1], (branch, 1 - arm)) not in found:
                break
            way = way[:-1]
            found.add(way)
    return found


def _given_for(name: str, event: Event) -> list[ast.expr]:
    """What a lambda around an event is given for a parameter, where it is called where it stands."""
    for branch, _ in reversed(event.context.arms):
        if not isinstance(branch, ast.Lambda):
            continue
        names = [one.arg for one in branch.args.args]
        called = (e.call for e in event.unit.events if isinstance(e.node, ast.Call) and e.node.func is branch)
        return [given(call)[names.index(name)] for call in called if name in names[: len(given(call))]]
    return []


def is_limited(node: ast.expr, event: Event) -> bool:
    """Whether the branches around an event, or those passed by leaving early, keep a value from growing large: `b - a`
    where `a >= b` holds, `x` where `x < 20` does."""
    value, _ = _terms.meaning(node, event)
    return any(_keeps(test, arm, one) for one in (node, value) for test, arm in _tests(event))


def _tests(event: Event) -> list[tuple[ast.Compare, int]]:
    branches = (*event.context.arms, *event.context.guards)
    tests = ((branch.test, arm) for branch, arm in branches if isinstance(branch, (ast.If, ast.IfExp)))
    return [(test, arm) for test, arm in tests if isinstance(test, ast.Compare) and len(test.ops) == 1]


def _keeps(test: ast.Compare, arm: int, node: ast.expr) -> bool:
    if not isinstance(test.ops[0], (*_ABOVE, *_BELOW)):
        return False
    large, small = test.left, test.comparators[0]
    if isinstance(test.ops[0], _ABOVE) != (arm == 0):
        large, small = small, large
    if isinstance(large, ast.Constant) and isinstance(large.value, (int, float)):
        return large.value <= _OVERFLOW and _terms.same(small, node)
    difference = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
    return difference and _terms.same(node.left, small) and _terms.same(node.right, large)  # type: ignore[attr-defined]
