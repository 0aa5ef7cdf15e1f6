"""An edit for a list that one method of a class fills and another one reads as a whole: the reader empties it."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.rules.memory.fixes.stored_values import stored_at
from torchvet.source.model import Event, Unit, edits, is_call, names_in, receiver, walk


def emptied_after_use(file: SourceFile, finding: Finding) -> Edits:
    """`self.outputs.clear()` at the end of the one method that reads what the finding's line adds to `self.outputs`."""
    for kept in stored_at(file, finding):
        on = receiver(kept.event.node) if is_call(kept.event.node, "append") else None
        if isinstance(on, ast.Attribute) and isinstance(on.value, ast.Name):
            return _emptied(file, kept.event, on)
    return ()


def _emptied(file: SourceFile, event: Event, held: ast.Attribute) -> Edits:
    own, owner = event.unit.self_name(), event.unit.method_class()
    if owner is None or not own or file.segment(held.value) != own:
        return ()
    used = {name: _mentions(unit.node, held.attr) for name, unit in owner.methods.items()}
    readers = [name for name, found in used.items() if found and name not in ("__init__", event.unit.name)]
    # Another object may read it as well, before or after that method.
    outside = len(_mentions(file.tree, held.attr)) != sum(map(len, used.values()))
    return _at_the_end(file, owner.methods[readers[0]], held.attr) if len(readers) == 1 and not outside else ()


def _mentions(node: ast.AST, attribute: str) -> list[ast.Attribute]:
    return [n for n in walk(node) if isinstance(n, ast.Attribute) and n.attr == attribute]


def _at_the_end(file: SourceFile, reader: Unit, attribute: str) -> Edits:
    """The line that empties, as the last of a method or above its one `return`; nothing where that hands the list on,
    or an item of it."""
    last = reader.node.body[-1]
    returns = [n for n in walk(reader.node) if isinstance(n, ast.Return)]
    bound = [n for n in _mentions(reader.node, attribute) if not isinstance(n.ctx, ast.Load)]
    if (
        bound
        or returns not in ([], [last])
        or any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(reader.node))
    ):
        return ()
    code = f"{reader.self_name()}.{attribute}.clear()"
    if not returns:
        return edits.after(file, last, code)
    shares = {name for s in reader.node.body for name in _bound_to(s, attribute)} | {attribute}
    named = names_in(last) | {n.attr for n in walk(last) if isinstance(n, ast.Attribute)}
    return () if shares & named else edits.before(file, last, code)


def _bound_to(statement: ast.stmt, attribute: str) -> set[str]:
    """Names that a statement binds to the list itself."""
    if not isinstance(statement, ast.Assign) or getattr(statement.value, "attr", "") != attribute:
        return set()
    return {n.id for target in statement.targets for n in walk(target) if isinstance(n, ast.Name)}
