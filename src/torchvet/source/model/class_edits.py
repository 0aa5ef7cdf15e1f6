"""Edits of classes: an attribute of the class, or one that each object sets when it is made."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.source.model import blocks, edits
from torchvet.source.model.expressions import calls_in
from torchvet.source.model.units import receiver, terminal

if TYPE_CHECKING:
    from torchvet.finding import Edit
    from torchvet.source.model.file import SourceFile
    from torchvet.source.model.units import ClassModel


def with_attribute(file: SourceFile, owner: ClassModel, code: str) -> list[Edit]:
    """A line at the head of a class's body, behind its docstring."""
    body = owner.node.body
    rest = body[1:] if ast.get_docstring(owner.node, clean=False) is not None else body
    return _above(file, rest[0], code) if rest else edits.after(file, body[0], code)


def set_when_made(file: SourceFile, owner: ClassModel, code: str) -> list[Edit]:
    """A line in `__init__` behind its call of `super().__init__`; a class without `__init__` gets one, which hands on
    what it is given. Nothing where that call is not plain."""
    made = owner.methods.get("__init__")
    if made is not None:
        calls = [s for s in made.node.body if isinstance(s, ast.Expr) and _calls_super(s)]
        return edits.after(file, calls[0], code) if len(calls) == 1 else []
    first = next((s for s in owner.node.body if isinstance(s, ast.FunctionDef)), None)
    if first is None:
        return []
    inner = edits.margin(file, first) + blocks.step_of(file, file.tree.body, None)
    rows = ("def __init__(self, *args, **kwargs):", f"{inner}super().__init__(*args, **kwargs)", f"{inner}{code}", "")
    return _above(file, first, file.newline.join(rows))


def _calls_super(statement: ast.stmt) -> bool:
    on = [receiver(call) for call in calls_in(statement) if terminal(call) == "__init__"]
    return any(isinstance(one, ast.Call) and terminal(one) == "super" for one in on)


def _above(file: SourceFile, statement: ast.stmt, code: str) -> list[Edit]:
    """A line above a statement and its decorators."""
    if not edits.stands_alone(file, statement):
        return []
    text = f"{edits.margin(file, statement)}{code}{file.newline}"
    return [edits.insert(file, (blocks.first_line(statement), 1), text)]
