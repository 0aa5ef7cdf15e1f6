"""Edits that do once, before a loop, what the loop does in every turn."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, SourceFile
from torchvet.rules.shared.training_loops import without_statement
from torchvet.source.model import Event, Loop, edits, receiver, targets_of, terminal, walk

_READS = frozenset(("print", "len", "float", "int", "str"))
_KEEPS = frozenset(("append", "put", "add", "update", "extend", "insert", "appendleft", "setdefault"))

_TENSOR_READS = frozenset(
    ("masked_fill", "where", "matmul", "mm", "bmm", "mul", "add", "sub", "div", "gather", "index_select", "eq", "ne",
     "gt", "lt", "ge", "le", "expand_as", "view_as", "type_as", "to", "sum", "mean", "dot", "pow", "maximum", "minimum",
     "lerp", "masked_select", "scatter", "scatter_add", "index_add")
)  # fmt: skip


def before_loop(file: SourceFile, event: Event, name: str) -> list[Edit]:
    """The statement that binds a name in a loop, put before the loop; nothing where a turn may find another value in
    the name, or may write to what it holds."""
    loop, statement = event.loop, event.statement
    if loop is None or not isinstance(loop.node, (ast.For, ast.While)) or statement not in loop.node.body:
        return []
    value = getattr(statement, "value", None)
    if statement.lineno != statement.end_lineno or not isinstance(value, ast.expr) or not _is_constant(file, value):
        return []
    if len(event.unit.bindings.get(name, ())) != 1 or _read_outside(event, name, loop):
        return []
    if any(n.lineno < statement.lineno for n in reads_of(loop.node, name)) or written_to(file, event, name):
        return []
    put = edits.before(file, loop.node, file.segment(statement))
    removed = without_statement(file, statement)
    return [*put, *removed] if put and removed else []


def _is_constant(file: SourceFile, node: ast.expr) -> bool:
    """Whether an expression calls torch alone and reads nothing that a method may have changed in between."""
    for one in walk(node):
        if isinstance(one, ast.Attribute) and not file.dotted(one).startswith(("torch.", "math.", "numpy.")):
            of_call = isinstance(one.value, ast.Call) or terminal(one.value) == ""
            if not of_call and one.attr not in ("device", "dtype"):
                return False
    return True


def reads_of(node: ast.AST, name: str) -> list[ast.Name]:
    """Where a name is read within some code."""
    return [n for n in walk(node) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]


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
    parents = {id(child): parent for parent in ast.walk(loop.node) for child in ast.iter_child_nodes(parent)}
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
    while True:
        parent = parents.get(id(node))
        if isinstance(parent, (ast.BinOp, ast.Compare, ast.UnaryOp)):
            return set()
        if isinstance(parent, ast.Subscript):
            if parent.value is not node:
                return set()
            node = parent
        elif isinstance(parent, ast.Attribute):
            if parent.attr in ("shape", "dtype", "device", "ndim"):
                return set()
            node = parent
        elif isinstance(parent, ast.Call):
            if parent.func is not node and not _only_reads(file, parent):
                return None
            node = parent
        elif isinstance(parent, (ast.keyword, ast.Starred, ast.Tuple, ast.List)):
            node = parent
        elif isinstance(parent, ast.Assign):
            targets = targets_of(parent)
            return {t.id for t in targets if isinstance(t, ast.Name)} if all(
                isinstance(t, ast.Name) for t in targets) else None  # fmt: skip
        else:
            return set() if isinstance(parent, (ast.Expr, ast.AugAssign, ast.FormattedValue)) else None


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
