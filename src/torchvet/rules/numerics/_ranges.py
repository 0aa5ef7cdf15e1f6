"""What branches and several bindings say of the range of a value."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Callable
from torchvet.rules.numerics import _terms
from torchvet.rules.shared.half_precision import latest
from torchvet.source.model import Event, calls_in, given, is_call, name_set, receiver, terminal, value_bound, walk
from torchvet.source.walking import Arm

_OVERFLOW = 88
"""The largest whole number whose exponential float32 holds."""
_DEEPEST = 3
_CHOOSING = name_set("max argmax topk multinomial sample")
"""What gives the indices of large values, or of values that were drawn by their probability."""
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


def unscaled(node: ast.expr, event: Event) -> tuple[ast.expr, Event]:
    """What is scaled by a factor: `x - peak` of `y / temperature`, where `y = x - peak`."""
    value, at = _terms.meaning(node, event)
    while isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Div, ast.Mult)):
        factor = isinstance(value.left, ast.Constant)
        value, at = _terms.meaning(value.right if factor else value.left, at)
    return value, at


def is_lowered(node: ast.expr, event: Event, *words: str) -> bool:
    """Whether something of one of the names was taken off a variable in place before: `x.sub_(peak)`."""
    value, _ = unscaled(node, event)
    if not isinstance(value, ast.Name):
        return False
    for before in event.unit.events[: event.index]:
        off: ast.expr | None = None
        if isinstance(before.node, ast.Call) and terminal(before.node) == "sub_":
            on, args = receiver(before.node), before.node.args
            off = args[0] if args and isinstance(on, ast.Name) and on.id == value.id else None
        elif isinstance(before.node, ast.AugAssign) and isinstance(before.node.op, ast.Sub):
            off = before.node.value if terminal(before.node.target) == value.id else None
        if off is not None and _terms.mentions(off, *words) and event.sure_after(before):
            return True
    return False


def is_logit(node: ast.expr, event: Event) -> bool:
    """Whether a value is the logit of a probability, by torch or by a function of the file with that name: one below 1
    has a logit of 17 at most."""
    value, at = _terms.meaning(node, event)
    if not isinstance(value, ast.Call) or terminal(value) != "logit":
        return False
    file = at.unit.file
    own = file.functions("logit") if isinstance(value.func, ast.Name) else []
    return file.dotted(value.func).startswith("torch.") or any("log(" in file.text_of(unit) for unit in own)


def is_choice(node: ast.expr, event: Event, depth: int = 0) -> bool:
    """Whether indices are those of the largest values, or were drawn: what they pick out is not vanishingly small."""
    if any(is_call(call, *_CHOOSING) for call in calls_in(node)):
        return True
    names = {n.id for n in walk(node) if isinstance(n, ast.Name)} if depth < _DEEPEST else set()
    for name in sorted(names):
        # Also the second of `values, indices = x.max(1)`.
        binding = latest(name, event)
        value = getattr(binding.node, "value", None) if binding is not None else None
        if binding is not None and isinstance(value, ast.expr) and is_choice(value, binding, depth + 1):
            return True
    return False
