"""Edits that do once, before a loop, what the loop does in every turn."""

from __future__ import annotations

import ast
from typing import TypeGuard

from torchvet.rules.kit import Edit, SourceFile
from torchvet.source.model import Event, Loop, blocks, edits, receiver, targets_of, terminal, walk
from torchvet.source.model.expressions import name_set, parents_in, reads_of

_READS = name_set("print len float int str")
_KEEPS = name_set("append put add update extend insert appendleft setdefault")
_TENSOR_READS = name_set(
    "masked_fill where matmul mm bmm mul add sub div gather index_select eq ne gt lt ge le expand_as view_as type_as "
    "to sum mean dot pow maximum minimum lerp masked_select scatter scatter_add index_add"
)
_COMPUTING = (ast.BinOp, ast.Compare, ast.UnaryOp, ast.Subscript, ast.Attribute)
_KEEPING_NOTHING = (*_COMPUTING, ast.FormattedValue, ast.Expr, ast.AugAssign)
_FIGURES = ("shape", "dtype", "device", "ndim")


def before_loop(file: SourceFile, event: Event, name: str) -> list[Edit]:
    """The statement that binds a name in a loop, put before the loop; nothing where a turn may find another value in
    the name, or may write to what it holds."""
    loop, statement = event.loop, event.statement
    if loop is None or not isinstance(loop.node, (ast.For, ast.While)) or statement not in loop.node.body:
        return []
    value = getattr(statement, "value", None)
    if not edits.on_one_line(statement) or not isinstance(value, ast.expr) or not _is_constant(file, value):
        return []
    if len(event.unit.bindings.get(name, ())) != 1 or _read_outside(event, name, loop):
        return []
    if any(n.lineno < statement.lineno for n in reads_of(loop.node, name)) or written_to(file, event, name):
        return []
    return blocks.moved(file, statement, loop.node)


def _is_constant(file: SourceFile, node: ast.expr) -> bool:
    """Whether an expression calls torch alone and reads nothing that a method may have changed in between."""
    attributes = [n for n in walk(node) if isinstance(n, ast.Attribute) and n.attr not in ("device", "dtype")]
    read = (n for n in attributes if not file.dotted(n).startswith(("torch.", "math.", "numpy.")))
    return all(isinstance(n.value, ast.Call) or terminal(n.value) == "" for n in read)


def _read_outside(event: Event, name: str, loop: Loop) -> bool:
    """Whether a name is read outside the loop, where it may not be bound yet, or by a function that is defined here."""
    inside = {id(n) for n in reads_of(loop.node, name)}
    everywhere = reads_of(event.unit.file.tree if event.unit.is_module else event.unit.node, name)
    return any(id(n) not in inside for n in everywhere)


def written_to(file: SourceFile, event: Event, name: str) -> bool:
    """Whether something in the event's loop may write to the tensor in a name, or to a view of it, or hands it to what
    may; what only torch's own functions and operators read is left as it is."""
    loop = event.loop
    assert loop is not None
    parents = parents_in(loop.node)
    held = {name}
    for read in reads_of(loop.node, name):
        holder = _kept_by(file, read, parents)
        if holder is None:
            return True
        held |= holder
    return any(writes(e, held) for e in event.unit.events if e.inside(loop) and e.statement is not event.statement)


def _kept_by(file: SourceFile, read: ast.expr, parents: dict[int, ast.AST]) -> set[str] | None:
    """The names that a value read here may end up in as it is or as a view; None where it goes anywhere else."""
    node: ast.AST = read
    parent = parents.get(id(node))
    # Up the expression as long as the value itself, or a view of its memory, is handed on.
    while _hands_on(parent, node):
        if isinstance(parent, ast.Call) and parent.func is not node and not _only_reads(file, parent):
            return None
        node, parent = parent, parents.get(id(parent))
    if isinstance(parent, ast.Assign):
        targets = targets_of(parent)
        return {terminal(t) for t in targets} if all(isinstance(t, ast.Name) for t in targets) else None
    return set() if isinstance(parent, _KEEPING_NOTHING) else None


def _hands_on(parent: ast.AST | None, node: ast.AST) -> TypeGuard[ast.AST]:
    """Whether what is around a value may be that value, hold it or be a view of it; operators make a new one."""
    if isinstance(parent, ast.Subscript):
        return parent.value is node
    if isinstance(parent, ast.Attribute):
        return parent.attr not in _FIGURES
    return isinstance(parent, (ast.Call, ast.keyword, ast.Starred, ast.Tuple, ast.List))


def _only_reads(file: SourceFile, call: ast.Call) -> bool:
    """Whether a call is given a tensor and keeps and changes nothing of it."""
    called = terminal(call)
    if any(k.arg in ("out", None) for k in call.keywords) or called.endswith("_") or called in _KEEPS:
        return False
    if file.dotted(call.func).startswith(("torch.", "math.")):
        return True
    if isinstance(call.func, ast.Name):
        return called in _READS
    on = receiver(call)
    # A method of a tensor: `scores.masked_fill(mask, -1e9)`; one of an object may do anything.
    return called in _TENSOR_READS and on is not None


def writes(other: Event, held: set[str]) -> bool:
    """Whether an event writes to a tensor in one of these names."""
    node = other.node
    if isinstance(node, ast.Call):
        on = receiver(node)
        return terminal(node).endswith("_") and on is not None and bool(_root(on) & held)
    for target in targets_of(node):
        if (isinstance(node, ast.AugAssign) or not isinstance(target, ast.Name)) and _root(target) & held:
            return True
    return False


def _root(node: ast.AST) -> set[str]:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()
