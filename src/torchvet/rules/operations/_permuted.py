"""Which permutation's layout an expression still has: followed over names and over what keeps the strides."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from torchvet.rules.kit import Iterator
from torchvet.rules.operations._values import binding_of
from torchvet.source.model import Event, is_call, keyword, name_set, operand, receiver, terminal, value_bound
from torchvet.source.syntax import parts

MOVING = name_set("transpose permute swapaxes swapdims t")
_TURNED = ("T", "mT")
_ALIKE = name_set("""
    float double half bfloat16 long int short bool byte to cpu cuda clone detach exp log sqrt abs neg sign round floor
    ceil relu tanh sigmoid gelu silu clamp pow square logical_not isnan isinf isfinite type
""")
"""Operations of one tensor whose result keeps the strides: each was tried. `softmax`, `masked_fill`, `cumsum` and
`roll` lay their result out in order."""
_COMPARING = name_set("eq ne lt le gt ge add sub mul div logical_and logical_or")
"""Operations of two tensors: the first of them decides, if the other adds no dimension."""
_NO_RANK = name_set("expand_as view reshape unsqueeze item size")
"""How the other operand is written that surely adds no dimension: by a few sizes, or like the first one."""
_DEEPEST = 8


@dataclass(frozen=True)
class Permuted:
    """A call of `transpose` or its like (or `.T`), the event that it stands at, and what its result went through."""

    node: ast.Call | ast.Attribute
    at: Event
    kept_by: tuple[str, ...] = ()
    bounds: tuple[tuple[ast.expr, Event], ...] = ()
    """The ends of slices that were taken: a slice of one row may be viewed in any shape."""

    @property
    def base(self) -> ast.expr | None:
        """The tensor that is permuted."""
        return receiver(self.node) if isinstance(self.node, ast.Call) else self.node.value


def permuted(node: ast.expr | None, event: Event, depth: int = 0) -> list[Permuted]:
    """The permutations, one for each way there, whose layout an expression has; none where any way is unsure."""
    if depth > _DEEPEST or node is None:
        return []
    if isinstance(node, ast.Name):
        return _of_name(node, event, depth)
    if isinstance(node, ast.Subscript):
        return _of_slice(node, event, depth)
    if isinstance(node, ast.Attribute):
        if node.attr == "data":
            return permuted(node.value, event, depth + 1)
        turned = node.attr in _TURNED and not event.unit.file.roles.values(node, event.unit)
        return [Permuted(node, event)] if turned else []
    if is_call(node, *MOVING) and receiver(node) is not None:
        return [Permuted(node, event)]
    kept = _keeper(node, event)
    if kept is None:
        return []
    name, inner = kept
    return [Permuted(p.node, p.at, (*p.kept_by, name), p.bounds) for p in permuted(inner, event, depth + 1)]


def _of_name(node: ast.Name, event: Event, depth: int) -> list[Permuted]:
    reaching = _bindings(node, event)
    found: list[Permuted] = []
    for binding in reaching:
        value = value_bound(binding.node, node.id)
        # What another turn of the loop has bound may be another tensor.
        here = permuted(value, binding, depth + 1) if value is not None and event.inside(binding.loop) else []
        if not here:
            return []
        found += here
    return found


def _bindings(node: ast.Name, event: Event) -> list[Event]:
    """What may have bound a name that an event sees: the one binding that is sure, or one in each arm of an `if`."""
    if not event.is_own(node):
        return []
    sure = event.unit.file.devices.reaching(node.id, event)
    if sure:
        return sure
    latest: list[Event] = []
    for one in reversed(event.bindings_before(node.id)):
        # What a later binding of the same arm has replaced is not seen.
        if not any(one.sure_after(later) for later in latest):
            latest.append(one)
    arms = [one.context.arms for one in latest]
    if len(latest) != 2 or not all(arms) or arms[0][:-1] != arms[1][:-1]:
        return []
    (branch, taken), (other, left) = arms[0][-1], arms[1][-1]
    both = isinstance(branch, ast.If) and branch is other and taken != left
    return latest if both and all(arm in event.context.arms for arm in arms[0][:-1]) else []


def _of_slice(node: ast.Subscript, event: Event, depth: int) -> list[Permuted]:
    """`x[:k]` and `x[:, a:b]`: they leave all dimensions where they are."""
    taken = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    slices = [one for one in taken if isinstance(one, ast.Slice)]
    if len(slices) < len(taken) or any(one.step is not None for one in slices):
        return []
    ends = tuple((end, event) for one in slices for end in (one.upper or one.lower,) if end is not None)
    found = permuted(node.value, event, depth + 1)
    return [Permuted(p.node, p.at, p.kept_by, (*p.bounds, *ends)) for p in found]


def _keeper(node: ast.expr, event: Event) -> tuple[str, ast.expr | None] | None:
    """An operation that keeps the strides, by its name, and the tensor whose strides these are."""
    if isinstance(node, ast.Compare):
        return ("the comparison", node.left) if len(node.ops) == 1 and _adds_none(node.comparators[0], event) else None
    if isinstance(node, ast.BinOp):
        plain = not isinstance(node.op, ast.MatMult) and _adds_none(node.right, event)
        return ("the arithmetic", node.left) if plain else None
    if not isinstance(node, ast.Call) or keyword(node, "memory_format") is not None:
        return None
    name, on = terminal(node), operand(event.unit.file, node)
    others = [one for one in node.args if one is not on]
    if name in _ALIKE or (name in _COMPARING and len(others) == 1 and _adds_none(others[0], event)):
        return name, on
    return None


def _adds_none(node: ast.expr, event: Event) -> bool:
    """Whether an operand surely has no more dimensions than two."""
    bound = binding_of(node, event)
    if bound is not None:
        node = bound[0]
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Subscript) and _is_none(node.slice):
        return True
    return is_call(node, *_NO_RANK) and len(node.args) <= 2


def _is_none(node: ast.expr) -> bool:
    """Whether `None` alone, or with one slice, is the index."""
    listed = node.elts if isinstance(node, ast.Tuple) else [node]
    return len(listed) <= 2 and any(isinstance(one, ast.Constant) and one.value is None for one in listed)


def more_than_one(bound: ast.expr, event: Event) -> bool:
    """Whether the text shows that the end of a slice takes more than one row: a number, or what a loop goes over."""
    return any(isinstance(n, int) and n > 1 for n in _numbers(bound, event))


def _numbers(bound: ast.expr, event: Event) -> Iterator[object]:
    if isinstance(bound, ast.Constant):
        yield bound.value
    loop = event.loop.node if event.loop is not None else None
    if not isinstance(bound, ast.Name) or not isinstance(loop, ast.For) or terminal(loop.target) != bound.id:
        return
    for value in _gone_over(loop.iter, event):
        for one in parts(value) if isinstance(value, (ast.Tuple, ast.List)) else ():
            yield getattr(one, "value", None)


def _gone_over(over: ast.expr, event: Event) -> Iterator[ast.expr]:
    """What a loop goes over: a literal, or what a parameter is given by default and by the callers of this file."""
    bound = binding_of(over, event)
    yield bound[0] if bound is not None else over
    unit = event.unit
    if isinstance(over, ast.Name) and over.id in unit.parameters:
        yield from (value for value, _ in unit.file.arguments(unit, over.id))
        default = unit.default(over.id)
        if default is not None:
            yield default
