"""Edits for iterators that are used up: a list where one costs nothing, else the iterator made in each turn."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, SourceFile
from torchvet.rules.training._iterator_runs import UsedUp
from torchvet.source.model import blocks, edits, names_in


def edits_for(file: SourceFile, found: UsedUp) -> Edits:
    """A list of a module's parts; data is made anew before the loop that goes through it."""
    made = found.made
    unit = made.event.unit
    if made.parts and unit.home("list") is None:
        value = made.value
        start, end = edits.start_of(file, value), edits.end_of(file, value)
        return [edits.insert(file, start, "list("), edits.insert(file, end, ")")]
    return [] if made.parts or made.attribute or made.given else _made_in_the_loop(file, found)


def _made_in_the_loop(file: SourceFile, found: UsedUp) -> Edits:
    """`batches = iter(loader)` moved into the loop over epochs, to right before the loop over the batches."""
    made, loop, inner = found.made, found.loop, found.again.at
    if not found.sole or not isinstance(loop, ast.For) or not isinstance(inner, ast.For) or inner not in loop.body:
        return []
    block = blocks.block_of(made.unit.node, loop)
    read = names_in(made.value)
    later = (e for name in read for e in made.unit.bindings.get(name, ()) if e.index > made.event.index)
    if made.event.statement not in block or any(True for _ in later) or not edits.stands_alone(file, inner):
        return []
    return blocks.moved(file, made.event.statement, inner)
