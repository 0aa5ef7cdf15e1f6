"""Edits to whole statements of a block: moved under a `with`, an import put at the top."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchvet.finding import Edit
from torchvet.source.model import edits

if TYPE_CHECKING:
    from torchvet.source.model.file import SourceFile


def margin_of(file: SourceFile, statement: ast.stmt) -> str:
    """The white space before a statement that begins its line."""
    return file.lines[statement.lineno - 1][: edits.start_of(file, statement)[1] - 1]


def block_of(file: SourceFile, statement: ast.stmt) -> list[ast.stmt]:
    """The statements among which one stands, itself included; empty where it is none of the file's."""
    for node in ast.walk(file.tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and statement in block:
                return block
    return []


def under_with(file: SourceFile, statements: Sequence[ast.stmt], head: str) -> list[Edit]:
    """Put neighbouring statements under `with head:`; nothing where a line cannot be moved to the right as it is."""
    first, last = statements[0], statements[-1]
    rows = range(first.lineno, (last.end_lineno or last.lineno) + 1)
    text = "\n".join(file.lines[n - 1] for n in rows)
    margin = margin_of(file, first)
    if not all(edits.stands_alone(file, s) for s in statements) or '"""' in text or "'''" in text:
        return []
    if any(file.lines[n - 1].endswith("\\") for n in rows) or margin.strip():
        return []
    step = "\t" if margin.endswith("\t") else _step(file)
    put = [Edit(path=file.path, start=(rows[0], 1), end=(rows[0], 1), text=f"{margin}with {head}:{file.newline}{step}")]
    later = [n for n in rows[1:] if file.lines[n - 1].strip()]
    return [*put, *(Edit(path=file.path, start=(n, 1), end=(n, 1), text=step) for n in later)]


def _step(file: SourceFile) -> str:
    """By how much the file's first indented block is indented."""
    for node in ast.walk(file.tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.stmt) and isinstance(body, list) and body and isinstance(body[0], ast.stmt):
            inner, outer = margin_of(file, body[0]), margin_of(file, node)
            if not inner.strip() and inner.startswith(outer) and inner != outer:
                return inner[len(outer) :]
    return "    "


def importing(file: SourceFile, module: str) -> list[Edit]:
    """`import module`, before the file's first import that it may come before by the alphabet, those of the future
    left out; after the last import at the top where there is none. Nothing where the file imports nothing."""
    last: ast.stmt | None = None
    for statement in file.tree.body:
        future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not isinstance(statement, (ast.Import, ast.ImportFrom)) or future:
            continue
        last = statement
        if not (isinstance(statement, ast.Import) and statement.names[0].name < module):
            return edits.before(file, statement, f"import {module}")
    return edits.after(file, last, f"import {module}") if last is not None else []


def within(statement: ast.stmt, other: ast.stmt) -> bool:
    """Whether a statement is another, or lies in it."""
    return any(one is statement for one in ast.walk(other))


def tried(code: ast.AST, statement: ast.stmt) -> bool:
    """Whether a statement lies in a `try` of some code: what follows may run although it was not done to its end."""
    tries = (n for n in ast.walk(code) if n.__class__.__name__ in ("Try", "TryStar"))
    return any(within(statement, one) for one in tries)  # type: ignore[arg-type]
