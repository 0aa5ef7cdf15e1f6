"""Edits for a list that only a slice of its last elements is read of: what is older goes where something is added."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.rules.memory.fixes.bounded_containers import begins, read
from torchvet.rules.memory.fixes.stored_values import stored_at
from torchvet.source.model import Event, edits, parents_in, receiver, terminal, walk


def trimmed(file: SourceFile, finding: Finding) -> Edits:
    """`del saved[:-n]` after the line that appends, where the list is read by `saved[-n:]` alone."""
    for kept in stored_at(file, finding):
        call = kept.event.node
        if not isinstance(call, ast.Call) or terminal(call) != "append" or len(call.args) != 1:
            continue
        on = receiver(call)
        length = _length(file, on) if isinstance(on, (ast.Name, ast.Attribute)) else None
        if on is not None and length is not None and _is_fixed(file, length, on, kept.event):
            return edits.after(file, kept.event.statement, f"del {file.segment(on)}[:-{file.segment(length)}]")
    return ()


def _length(file: SourceFile, holder: ast.expr) -> ast.expr | None:
    """How many of a list's last elements its slices read; None where they differ, or anything else may need more."""
    parents = parents_in(file.tree)
    lengths: list[ast.expr] = []
    reach = 0
    for node in walk(file.tree):
        if not isinstance(node, (ast.Name, ast.Attribute)) or terminal(node) != terminal(holder):
            continue
        if node.__class__ is not holder.__class__:
            return None
        if isinstance(node.ctx, ast.Store):
            if begins(file, parents[id(node)], lists=False) is None:
                return None
            continue
        length = _of_slice(node, parents[id(node)])
        if length is not None:
            lengths.append(length)
            continue
        far = read(node, parents)
        if far is None:
            return None
        reach = max(reach, far)
    if len({ast.unparse(one) for one in lengths}) != 1:
        return None
    first = lengths[0]
    if isinstance(first, ast.Constant):
        return first if isinstance(first.value, int) and first.value >= max(reach, 1) else None
    return first if reach <= 1 else None


def _of_slice(node: ast.expr, parent: ast.AST) -> ast.expr | None:
    """The `n` of `saved[-n:]`."""
    if not isinstance(parent, ast.Subscript) or parent.value is not node or not isinstance(parent.ctx, ast.Load):
        return None
    part = parent.slice
    if not isinstance(part, ast.Slice) or part.upper is not None or part.step is not None:
        return None
    lower = part.lower
    return lower.operand if isinstance(lower, ast.UnaryOp) and isinstance(lower.op, ast.USub) else None


def _is_fixed(file: SourceFile, length: ast.expr, holder: ast.expr, event: Event) -> bool:
    """Whether a length is the same wherever and whenever it is read: a number, a constant of the module, or an
    attribute beside the list that only `__init__` binds."""
    if isinstance(length, ast.Constant):
        return True
    bound = [n for n in walk(file.tree) if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store)
             and terminal(n) == terminal(length)]  # fmt: skip
    if len(bound) != 1:
        return False
    unit = file.unit_at(bound[0].lineno)
    if isinstance(length, ast.Name):
        return unit.is_module and length.id.isupper()
    beside = isinstance(length, ast.Attribute) and isinstance(holder, ast.Attribute)
    same = beside and ast.unparse(length.value) == ast.unparse(holder.value) == event.unit.self_name()  # type: ignore[attr-defined]
    return same and unit.name == "__init__" and unit.owner is event.unit.method_class()
