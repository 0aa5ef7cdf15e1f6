"""An edit for a list that a hook of each batch fills and the hook of the epoch's end reads: that one empties it."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.rules.memory.fixes.stored_values import stored_at
from torchvet.source.model import Event, Unit, edits, is_call, parents_in, reads_of, receiver, walk

_OF_A_BATCH = re.compile(r"(training|validation|test|predict)_step|on_\w*batch_end")
_OF_AN_EPOCH = re.compile(r"\w*epoch_end")
"""Hooks whose list is that of one epoch. Another method that reads it may do so again and again."""
_READING = ("cat", "stack", "concatenate", "hstack", "vstack", "len", "sum", "zip", "enumerate")


def emptied_after_use(file: SourceFile, finding: Finding) -> Edits:
    """`self.outputs.clear()` at the end of the hook that reads what the finding's line adds to `self.outputs`."""
    for kept in stored_at(file, finding):
        on = receiver(kept.event.node) if is_call(kept.event.node, "append") else None
        if isinstance(on, ast.Attribute) and isinstance(on.value, ast.Name):
            return _emptied(file, kept.event, on)
    return ()


def _emptied(file: SourceFile, event: Event, held: ast.Attribute) -> Edits:
    own, owner = event.unit.self_name(), event.unit.method_class()
    if owner is None or not own or file.segment(held.value) != own or not _OF_A_BATCH.fullmatch(event.unit.name):
        return ()
    used = {name: _mentions(unit.node, held.attr) for name, unit in owner.methods.items()}
    readers = [name for name, found in used.items() if found and name not in ("__init__", event.unit.name)]
    # Another object may read it as well, before or after that method.
    outside = len(_mentions(file.tree, held.attr)) != sum(map(len, used.values()))
    if outside or len(readers) != 1 or not _OF_AN_EPOCH.fullmatch(readers[0]):
        return ()
    return _at_the_end(file, owner.methods[readers[0]], held.attr)


def _mentions(node: ast.AST, attribute: str) -> list[ast.Attribute]:
    return [n for n in walk(node) if isinstance(n, ast.Attribute) and n.attr == attribute]


def _at_the_end(file: SourceFile, reader: Unit, attribute: str) -> Edits:
    """The line that empties, as the last of a method or above its one `return`; nothing where the list may be handed
    on."""
    last, own = reader.node.body[-1], reader.self_name()
    ends = [n for n in walk(reader.node) if isinstance(n, (ast.Return, ast.Raise, ast.Yield, ast.YieldFrom))]
    returns = isinstance(last, ast.Return)
    if not own or ends not in ([], [last]) or (ends and not returns) or not _is_only_read(reader, attribute):
        return ()
    code = f"{own}.{attribute}.clear()"
    return edits.before(file, last, code) if returns else edits.after(file, last, code)


def _is_only_read(reader: Unit, attribute: str) -> bool:
    """Whether all that a method does with a list, by itself or by a name, is to join, count or go through it."""
    parents = parents_in(reader.node)
    uses: list[ast.expr] = []
    for one in _mentions(reader.node, attribute):
        bound = parents[id(one)]
        alias = bound.targets[0] if isinstance(bound, ast.Assign) and len(bound.targets) == 1 else None
        uses += reads_of(reader.node, alias.id) if isinstance(alias, ast.Name) else [one]
    return all(_reads(parents[id(use)], use) for use in uses)


def _reads(parent: ast.AST, use: ast.expr) -> bool:
    if isinstance(parent, (ast.comprehension, ast.For)):
        return parent.iter is use
    return isinstance(parent, ast.Call) and is_call(parent, *_READING) and use in parent.args
