"""An edit for an optimizer's state in which the entries of parameters that were replaced stay."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, SourceFile, places_of
from torchvet.source.model import Event, Unit, edits, is_call, names_bound, names_in, sole_target, walk


def taken_out(file: SourceFile, finding: Finding) -> Edits:
    """`state.pop(old, None)` for the one `state.get(old)`, or `state[old]`, in the function that stores the successor's
    entry."""
    if finding.holder is None or finding.holder.path[-1:] != [".state"]:
        return ()
    for event in (e for line in places_of(file, finding) for e in file.events_on(line)):
        node = event.node
        target = sole_target(node)
        if isinstance(target, ast.Subscript) and (event.loop is None or _is_of_each_turn(event, file, target)):
            return _popped(file, event.unit, file.segment(target.value), file.segment(target.slice))
    return ()


def _is_of_each_turn(event: Event, file: SourceFile, target: ast.Subscript) -> bool:
    """Whether each turn of a loop has another old parameter: what is read is bound in it."""
    loop = event.loop.node if event.loop is not None else None
    if not isinstance(loop, (ast.For, ast.AsyncFor)):
        return False
    bound = names_bound(loop.body) | names_in(loop.target)
    reads = [one for n in walk(event.unit.node) if (one := _read(file, n, file.segment(target.value))) is not None]
    return all(bound & names_in(ast.parse(old, mode="eval")) for _, old, _ in reads)


def _popped(file: SourceFile, unit: Unit, held: str, new: str) -> Edits:
    """The one read of another key made one that takes out."""
    reads = [one for node in walk(unit.node) if (one := _read(file, node, held)) is not None]
    subscripts = [n for n in walk(unit.node) if isinstance(n, ast.Subscript) and file.segment(n.value) == held]
    # Deleted: the old entry goes already.
    if len(reads) != 1 or any(isinstance(n.ctx, ast.Del) for n in subscripts):
        return ()
    node, old, otherwise = reads[0]
    if old == new or not edits.on_one_line(node):
        return ()
    return [edits.replace(file, node, f"{held}.pop({old}, {otherwise})")]


def _read(file: SourceFile, node: ast.AST, held: str) -> tuple[ast.expr, str, str] | None:
    """An expression that reads an entry, its key, and what is read where there is none."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and file.segment(node.value) == held:
        return node, file.segment(node.slice), "{}"  # a defaultdict
    if not is_call(node, "get") or not isinstance(node.func, ast.Attribute) or file.segment(node.func.value) != held:
        return None
    if node.keywords or not 1 <= len(node.args) <= 2:
        return None
    return node, file.segment(node.args[0]), file.segment(node.args[1]) if len(node.args) == 2 else "None"
