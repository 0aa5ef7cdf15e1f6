"""What edits are combined of: parts that only make sense together, texts put in, statements taken out or moved."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Finding, Sequence, SourceFile
from torchvet.source.model import Event, blocks, edits


def together(*parts: Sequence[Edit]) -> list[Edit]:
    """All parts, if each of them could be made; else nothing."""
    return [edit for part in parts for edit in part] if all(parts) else []


def taken_out(file: SourceFile, at: Event) -> list[Edit]:
    """A statement without effect on names taken out with its line; nothing where it is the only one of its block or
    shares its line."""
    statement = at.statement
    lone = isinstance(statement, ast.Expr) and len(blocks.block_of(at.unit.node, statement)) > 1
    return blocks.without(file, [statement]) if lone else []


def moved_after(file: SourceFile, event: Event, statement: ast.stmt) -> list[Edit]:
    """A call that is a statement, after another statement."""
    return together(edits.after(file, statement, file.segment(event.node)), taken_out(file, event))


def alone(file: SourceFile, event: Event) -> bool:
    """Whether a call is a statement with a line of its own."""
    return isinstance(event.parent, ast.Expr) and edits.stands_alone(file, event.statement)


def line_of(file: SourceFile, finding: Finding) -> int | None:
    """The line of a finding in this file; None where it is in another or has no place."""
    at = finding.location
    return at.line if at is not None and at.path == file.path else None


def related_lines(file: SourceFile, finding: Finding, role: str) -> list[int]:
    """The lines of this file that a finding names in a role."""
    return [r.line for r in finding.related if r.role == role and r.path == file.path and r.line is not None]
