"""Edits for a hook that is registered at every step: its handle is kept, and removed before the next or at the end of
the loop's body."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchvet.finding import Edit
from torchvet.rules.memory._hooks import ON_MODULES, ON_TENSORS
from torchvet.rules.mending import calls_at
from torchvet.source.model import edits

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.source.model import Event, SourceFile


def handle_removed(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """What a registration whose handle is thrown away needs; nothing where the hook may be wanted for longer."""
    for event, _ in calls_at(file, finding, *ON_MODULES, *ON_TENSORS):
        if not isinstance(event.parent, ast.Expr) or event.context.arms or not edits.stands_alone(file, event.parent):
            continue
        if event.loop is not None and isinstance(event.loop.node, (ast.For, ast.While)):
            return _at_the_end(file, event, event.loop.node)
        if event.loop is None and event.unit.owner is not None and event.unit.name != "__init__":
            return _before_the_next(file, event)
    return ()


def _free(file: SourceFile, name: str) -> str:
    while file.mentions(name):
        name += "_"
    return name


def _at_the_end(file: SourceFile, event: Event, loop: ast.For | ast.While) -> Sequence[Edit]:
    """`handle = …` in a loop, and `handle.remove()` after the last statement of its body."""
    if event.parent not in loop.body or loop.orelse:
        return ()
    handle, start = _free(file, "handle"), edits.start_of(file, event.call)
    removed = edits.after(file, loop.body[-1], f"{handle}.remove()")
    kept = Edit(path=file.path, start=start, end=start, text=f"{handle} = ")
    return [kept, *removed] if removed else ()


def _before_the_next(file: SourceFile, event: Event) -> Sequence[Edit]:
    """In a method: the hook of the last call goes before this one's is registered."""
    own, start = event.unit.self_name(), edits.start_of(file, event.call)
    if not own:
        return ()
    name = _free(file, "hook_handle")
    margin = file.lines[start[0] - 1][: start[1] - 1]
    deeper = margin + ("\t" if margin.endswith("\t") else "    ")
    before = (
        f'{margin}if hasattr({own}, "{name}"):{file.newline}{deeper}{own}.{name}.remove(){file.newline}'
        f"{margin}{own}.{name} = "
    )
    return [Edit(path=file.path, start=(start[0], 1), end=start, text=before)]
