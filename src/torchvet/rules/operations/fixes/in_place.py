"""Edits that write a new value of a tensor into the tensor that is there, to the same bits."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Iterator, Sequence, SourceFile
from torchvet.source.model import Event, calls_in, edits, targets_of, terminal, walk
from torchvet.source.model.steps import text_of

_FLOATING = {"parameters", "named_parameters"}
_ANY_KIND = {"state_dict", "buffers", "named_buffers"}
"""Counts of batches are whole numbers there, which cannot be multiplied in place by a fraction."""
_APART = ("clone", "deepcopy", "zeros_like", "ones_like", "empty_like", "full_like")
"""Calls whose result shares no memory with what they are given."""


def written_into(file: SourceFile, event: Event, target: ast.expr, value: ast.expr) -> Sequence[Edit]:
    """`t = t * a + b` as `t.mul_(a).add_(b)`: one operation after another, as they were. Nothing where the old value
    may be another name's too."""
    statement, loop = event.statement, event.loop.node if event.loop is not None else None
    over = set(map(terminal, calls_in(loop.iter))) if isinstance(loop, ast.For) else set()
    if not over & _FLOATING or over & _ANY_KIND:
        return ()
    if statement.lineno != statement.end_lineno or _may_be_shared(file, target):
        return ()
    text = _chained(file, target, value)
    return [edits.replace(file, statement, text)] if text else ()


def _chained(file: SourceFile, target: ast.expr, value: ast.expr) -> str:
    """The operations in place; empty for another form than one sum or product with the old value, or a sum of such a
    product and what does not read the old value."""
    own = text_of(target)
    if not isinstance(value, ast.BinOp):
        return ""
    if isinstance(value.op, ast.Mult):
        other = _other(value, own)
        return f"{file.segment(target)}.mul_({file.segment(other)})" if other is not None else ""
    sums = isinstance(value.op, ast.Add)
    if not sums and not isinstance(value.op, ast.Sub):
        return ""
    for old, rest in ((value.left, value.right), (value.right, value.left))[: 2 if sums else 1]:
        begun = file.segment(target) if text_of(old) == own else ""
        if isinstance(old, ast.BinOp) and isinstance(old.op, ast.Mult):
            begun = _chained(file, target, old)
        if begun and not _reads(rest, own):
            return f"{begun}.{'add_' if sums else 'sub_'}({file.segment(rest)})"
    return ""


def _other(product: ast.BinOp, own: str) -> ast.expr | None:
    """What the old value is multiplied by, where that does not read it."""
    for old, other in ((product.left, product.right), (product.right, product.left)):
        if text_of(old) == own and own not in text_of(other):
            return other
    return None


def _reads(node: ast.expr, own: str) -> bool:
    """Whether an expression reads what the target holds."""
    return any(text_of(n) == own for n in walk(node) if isinstance(n, (ast.Name, ast.Attribute, ast.Subscript)))


def _may_be_shared(file: SourceFile, target: ast.expr) -> bool:
    """Whether the file puts another tensor, uncopied, where this one is: `q.data = p.data`, `shadow[name] = p.data`."""
    shared = any(
        _same_kind(one, target) and not _is_new(value) for targets, value in _assigned(file) for one in targets
    )
    return shared or (isinstance(target, ast.Subscript) and not _begins_apart(file, target))


def _assigned(file: SourceFile) -> Iterator[tuple[list[ast.expr], ast.expr]]:
    """The targets of each assignment of a file, and what they are given."""
    for unit in file.units:
        for event in unit.events:
            if isinstance(event.node, (ast.Assign, ast.AnnAssign)) and event.node.value is not None:
                yield targets_of(event.node), event.node.value


def _same_kind(one: ast.expr, target: ast.expr) -> bool:
    """Whether two targets may be one place: `.data` of anything, items of one container."""
    if isinstance(target, ast.Subscript):
        return isinstance(one, ast.Subscript) and terminal(one.value) == terminal(target.value)
    return isinstance(one, ast.Attribute) and isinstance(target, ast.Attribute) and one.attr == target.attr


def _is_new(value: ast.expr) -> bool:
    """Whether an expression surely makes a tensor of its own."""
    return isinstance(value, ast.BinOp) or any(terminal(call) in _APART for call in calls_in(value))


def _begins_apart(file: SourceFile, target: ast.Subscript) -> bool:
    """Whether whatever binds the container fills it with copies, or with nothing."""
    name, kind = terminal(target.value), target.value.__class__
    found = [v for targets, v in _assigned(file) if any(t.__class__ is kind and terminal(t) == name for t in targets)]
    empty = [v for v in found if isinstance(v, ast.Dict) and not v.keys]
    return bool(found) and all(v in empty or _is_new(v) for v in found)
