"""Edits for `torch.where` with a branch that is singular where it is not taken: its argument is chosen first."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from torchvet.rules.kit import Edit, Sequence, SourceFile
from torchvet.rules.numerics import _terms
from torchvet.source.model import Event, edits, is_name, name_set, names_in, terminal, walk

_STANDS_IN = {"acosh": "2.0"} | dict.fromkeys(
    ["acos", "asin", "arccos", "arcsin", "atanh", "exp", "exp2", "expm1", "cosh", "sinh"], "0.0"
)
"""Arguments at which both a function and its derivative are finite; 1 for all others."""
_AS_SINGULAR = ("sqrt", "log", "rsqrt", "acos", "asin")
_ONE_BY_ONE = name_set(
    "log log2 log10 log1p exp exp2 expm1 cosh sinh sqrt rsqrt reciprocal square abs neg pow sin cos tan tanh sigmoid "
    "acos asin atan arccos arcsin acosh atanh relu float double add sub mul div clamp clamp_min"
)
"""Functions of each element for itself: more elements in, as many more out, and the same ones."""
_ASKS = _ONE_BY_ONE | name_set(
    "isnan isinf isfinite eq ne gt ge lt le logical_not logical_and logical_or bool detach gather unsqueeze squeeze "
    "sum mean norm any all"
)
"""What a condition may call to be written down twice."""
_COMPUTING = (ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Call, ast.keyword)
_PARTS = (*_COMPUTING, ast.Name, ast.Attribute, ast.Constant, ast.Subscript, ast.Slice, ast.Tuple)


@dataclass(frozen=True)
class Hidden:
    """A singular expression in a `branch` of a choice: in what it stands for (`value`, bound at the event `at`)."""

    whole: ast.expr
    argument: ast.expr
    branch: ast.expr
    value: ast.expr
    at: Event


def chosen_first(file: SourceFile, event: Event, found: Sequence[Hidden]) -> list[Edit]:
    """Each argument as `torch.where(condition, argument, 1.0)`: the same where its branch is taken, and where it is not
    away from the singular point. Nothing where one of them cannot be."""
    condition = event.call.args[0]
    if condition.lineno != condition.end_lineno or not _may_stand_twice(condition):
        return []
    made: list[Edit] = []
    for one in _innermost(found):
        if one.argument.lineno != one.argument.end_lineno or not _reaches(one.value, one.whole):
            return []
        about, _ = _terms.meaning(one.argument, one.at)
        if _terms.operand_of(file, about, *_AS_SINGULAR) is not None:
            return []  # `angle = torch.sqrt(squares)`: its own gradient would still be 0 times infinity
        if one.value is not one.branch and not _is_for_this(event, one, condition):
            return []
        choose, asked, name = (file.segment(n) for n in (event.call.func, condition, one.argument))
        other = _STANDS_IN.get(terminal(one.whole), "1.0") if isinstance(one.whole, ast.Call) else "1.0"
        pair = f"{name}, {other}" if one.branch is event.call.args[1] else f"{other}, {name}"
        made.append(edits.replace(file, one.argument, f"{choose}({asked}, {pair})"))
    return made


def _innermost(found: Sequence[Hidden]) -> list[Hidden]:
    """Those whose argument holds no other's: what is safe there makes what is computed from it safe."""
    ids = {id(one.argument) for one in found}
    kept = [one for one in found if not any(id(n) in ids for n in walk(one.argument) if n is not one.argument)]
    return list({id(one.argument): one for one in kept}.values())


def _may_stand_twice(condition: ast.expr) -> bool:
    """Whether a condition evaluated twice gives the same."""
    return all(
        isinstance(n, _PARTS) and not (isinstance(n, ast.Call) and terminal(n) not in _ASKS) for n in walk(condition)
    )


def _reaches(node: ast.expr, whole: ast.expr) -> bool:
    """Whether everything from a singular expression to the branch's value goes element by element, so that a condition
    of more elements than the argument changes nothing."""
    if node is whole:
        return True
    if isinstance(node, ast.BinOp):
        plain = not isinstance(node.op, ast.MatMult)
        return plain and (_reaches(node.left, whole) or _reaches(node.right, whole))
    if isinstance(node, ast.UnaryOp):
        return _reaches(node.operand, whole)
    if isinstance(node, ast.Call) and terminal(node) in _ONE_BY_ONE:
        on = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return any(_reaches(one, whole) for one in (*on, *node.args))
    return False


def _is_for_this(event: Event, one: Hidden, condition: ast.expr) -> bool:
    """Whether a name that a branch reads is bound for this choice alone, by a line at which the condition is known."""
    unit, name = event.unit, terminal(one.branch)
    reads = [n for n in walk(unit.node) if is_name(n, name)]
    if one.at.unit is not unit or len(reads) != 2 or one.at.loop is not event.loop:
        return False
    between = unit.events[one.at.index : event.index]
    stored = {
        n.id for e in between for n in walk(e.statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    # Whatever is called or stored into may change what the condition reads; so may a name that is bound.
    in_place = any(isinstance(e.node, ast.Call) and terminal(e.node).endswith("_") for e in between)
    return not in_place and not names_in(condition) & stored and isinstance(one.at.statement, ast.Assign)
