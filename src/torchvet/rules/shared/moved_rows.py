"""Edits that move a statement to another place with all its rows, as they are written."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, SourceFile
from torchvet.source.model import blocks, edits, walk
from torchvet.source.statements import first_line, last_line


def rows_moved(file: SourceFile, statement: ast.stmt, other: ast.stmt, behind: bool = False) -> list[Edit]:
    """Move a statement before another, or behind it, at that one's indentation. Nothing where it shares its rows,
    behind the last row of the file, or where it would indent a string that goes over several rows."""
    removed = blocks.without(file, [statement])
    strings = (n for n in walk(statement) if isinstance(n, (ast.Constant, ast.JoinedStr)))
    line = last_line(other) + 1 if behind else first_line(other)
    inner, outer = edits.margin(file, statement), edits.margin(file, other)
    torn = inner != outer and any(n.lineno != n.end_lineno for n in strings)
    if not removed or line > len(file.lines) or torn:
        return []
    rows = file.lines[first_line(statement) - 1 : last_line(statement)]
    text = "".join(f"{outer}{row.removeprefix(inner)}{file.newline}" for row in rows)
    return [Edit(path=file.path, start=(line, 1), end=(line, 1), text=text), *removed]
