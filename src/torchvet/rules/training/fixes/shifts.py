"""An edit for a loss that shifts labels which are shifted already."""

from __future__ import annotations

import ast
from typing import TypeGuard

from torchvet.rules.kit import Edits, Finding, SourceFile, events_at
from torchvet.source.model import Event, argument, edits, is_literal, keyword, receiver, terminal, walk

_KEEPING = ("contiguous", "clone", "float", "long")
_FLAT = ("view", "reshape", "flatten")


def compared_row_by_row(file: SourceFile, finding: Finding) -> Edits:
    """`cross_entropy(logits[:, :-1]…, labels[:, 1:]…)` without the two slices, written in the call or where a name of
    its function is bound. Nothing where such a slice follows, which would have to go as well."""
    found = [pair for event in events_at(file, finding) if (pair := _shifting(event)) is not None]
    if len(found) != 1:
        return ()
    event, logits, labels = found[0]
    first = min(logits.lineno, labels.lineno)
    # A mask that is multiplied by the losses, say.
    others = [n for n in walk(event.unit.node) if _is_cut(n) and n.lineno >= first]
    if len(others) != 2 or keyword(event.call, "reduction") is not None:
        return ()
    return [edits.replace(file, one, file.segment(one.value)) for one in (logits, labels)]


def _shifting(event: Event) -> tuple[Event, ast.Subscript, ast.Subscript] | None:
    """A call that is given logits without their last row, and labels without their first."""
    if not isinstance(event.node, ast.Call):
        return None
    logits = _subscript(event, argument(event.call, "input", 0))
    labels = _subscript(event, argument(event.call, "target", 1))
    if logits is None or labels is None or not (_cuts_last(logits) and _cuts_first(labels)):
        return None
    return event, logits, labels


def _subscript(event: Event, node: ast.expr | None) -> ast.Subscript | None:
    """The slice that an argument is, also under methods that keep the order of its rows and under a name."""
    while node is not None:
        if isinstance(node, ast.Subscript):
            return node
        if isinstance(node, ast.Name):
            binding = event.binding_of(node.id) if event.is_own(node) else None
            alone = binding is not None and len(event.unit.bindings[node.id]) == 1
            value = binding.node if binding is not None and alone else None
            node = value.value if isinstance(value, ast.Assign) and isinstance(value.targets[0], ast.Name) else None
        else:
            node = receiver(node) if isinstance(node, ast.Call) and _keeps_rows(node) else None
    return None


def _keeps_rows(call: ast.Call) -> bool:
    """Whether a method gives the same rows in the same order, however many there are."""
    name = terminal(call)
    if name not in _FLAT:
        return name in _KEEPING
    # `view(samples * (steps - 1), -1)` counts the rows itself.
    return name == "flatten" or (bool(call.args) and _is_minus_one(call.args[0]))


def _is_minus_one(node: ast.expr | None) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and is_literal(node.operand, 1)


def _only_slice(node: ast.Subscript) -> ast.Slice | None:
    """The one slice of a subscript that leaves something out."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    cut = [p for p in parts if not (is_literal(p, ...) or (isinstance(p, ast.Slice) and not (p.lower or p.upper)))]
    only = cut[0] if len(cut) == 1 else None
    return only if isinstance(only, ast.Slice) and only.step is None else None


def _cuts_last(node: ast.Subscript) -> bool:
    part = _only_slice(node)
    return part is not None and part.lower is None and _is_minus_one(part.upper)


def _cuts_first(node: ast.Subscript) -> bool:
    part = _only_slice(node)
    return part is not None and part.upper is None and is_literal(part.lower, 1)


def _is_cut(node: ast.AST) -> TypeGuard[ast.Subscript]:
    return isinstance(node, ast.Subscript) and (_cuts_last(node) or _cuts_first(node))
