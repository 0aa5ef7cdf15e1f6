"""Blocks of statements as lines: which block holds one, and edits that indent, dedent, take out or move whole lines."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchvet.finding import Edit
from torchvet.source.model import edits
from torchvet.source.model.edits import margin as margin
from torchvet.source.statements import first_line as first_line
from torchvet.source.statements import last_line as last_line
from torchvet.source.statements import path_to_node
from torchvet.source.walking import walk

if TYPE_CHECKING:
    from torchvet.source.model.file import SourceFile


def block_of(within: ast.AST, statement: ast.stmt) -> list[ast.stmt]:
    """The list of statements, somewhere within a node, that holds a statement; empty where none does."""
    path = path_to_node(within, statement)
    return next((place.block for place in reversed(path) if place.statement is statement), [])


def blocks_around(within: ast.AST, statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks within a node that a statement stands in, innermost first."""
    path = path_to_node(within, statement)
    return [place.block for place in reversed(path) if holding(place.block, statement) is not None]


def holding(block: Sequence[ast.stmt], node: ast.AST) -> int | None:
    """The position in a block of the statement that is a node or has it within; None where none does."""
    line = int(getattr(node, "lineno", 0))
    # By lines first, as a walk of every statement is dear; several may share a line, so then by identity.
    found = (i for i, s in enumerate(block) if s.lineno <= line <= last_line(s))
    return next((i for i in found if any(one is node for one in walk(block[i]))), None)


def have_lines_of_their_own(file: SourceFile, statements: Sequence[ast.stmt]) -> bool:
    """Whether no statement shares a line with another: no `;`, no `if x: statement` on one line."""
    return all(edits.stands_alone(file, one) for one in statements)


def without(file: SourceFile, statements: Sequence[ast.stmt]) -> list[Edit]:
    """Take neighbouring statements out with their lines; nothing where they share these."""
    if not statements or not have_lines_of_their_own(file, statements):
        return []
    # The line end goes as well, so that no empty line is left.
    end = (last_line(statements[-1]) + 1, 1)
    return [Edit(path=file.path, start=(first_line(statements[0]), 1), end=end, text="")]


def moved(file: SourceFile, statement: ast.stmt, other: ast.stmt, behind: bool = False) -> list[Edit]:
    """Move a statement before another, or behind it, at that one's indentation. Nothing where it shares its rows,
    behind the last row of the file, or where it would indent a string that goes over several rows."""
    removed = without(file, [statement])
    strings = (n for n in walk(statement) if isinstance(n, (ast.Constant, ast.JoinedStr)))
    line = last_line(other) + 1 if behind else first_line(other)
    inner, outer = margin(file, statement), margin(file, other)
    # Other white space within a string would change what it says.
    torn = inner != outer and any(n.lineno != n.end_lineno for n in strings)
    # Behind the last row there may be no line end to write after.
    if not removed or line > len(file.lines) or torn:
        return []
    rows = file.lines[first_line(statement) - 1 : last_line(statement)]
    text = "".join(f"{outer}{row.removeprefix(inner)}{file.newline}" for row in rows)
    return [Edit(path=file.path, start=(line, 1), end=(line, 1), text=text), *removed]


def text_of_lines(file: SourceFile, first: int, last: int) -> str:
    """Lines as they are, each with its end."""
    return "".join(f"{line}{file.newline}" for line in file.lines[first - 1 : last])


def dedented(file: SourceFile, lines: Sequence[int], inner: str, outer: str) -> list[Edit] | None:
    """Take lines from one margin out to another; None where that cannot be done. Lines within strings stay as they are,
    and so do comments and continued lines that stand further left than their block."""
    # White space at the beginning of such a line is a part of the string.
    kept = _within_strings(file)
    # Only a statement must be at its margin; brackets let other lines begin anywhere.
    begin = {node.lineno for node in walk(file.tree) if isinstance(node, ast.stmt)}
    found = []
    for line in lines:
        text = file.lines[line - 1]
        if line in kept or not text.strip():
            continue
        if text.startswith(inner):
            # From the line's beginning, so that no other edit puts a line before it with the margin of before.
            found.append(Edit(path=file.path, start=(line, 1), end=(line, len(inner) + 1), text=outer))
        elif line in begin:
            return None
    return found


def indented(file: SourceFile, first: int, last: int, more: str) -> list[Edit]:
    """Put more white space before lines, except blank ones and those that begin within a string."""
    kept = _within_strings(file)
    wanted = [n for n in range(first, last + 1) if n not in kept and file.lines[n - 1].strip()]
    return [Edit(path=file.path, start=(n, 1), end=(n, 1), text=more) for n in wanted]


def opened_around(file: SourceFile, statements: Sequence[ast.stmt], header: str, more: str) -> list[Edit]:
    """Put neighbouring statements into a block of their own below a header."""
    if not have_lines_of_their_own(file, statements):
        return []
    first, last = first_line(statements[0]), last_line(statements[-1])
    put = Edit(path=file.path, start=(first, 1), end=(first, 1), text=f"{margin(file, statements[0])}{header}")
    head, *rest = indented(file, first, last, more)
    # One edit for both: two at one place would have no order.
    whole = f"{put.text}{file.newline}{head.text}"
    return [Edit(path=file.path, start=put.start, end=put.end, text=whole), *rest]


def step_of(file: SourceFile, body: Sequence[ast.stmt], owner: ast.stmt | None) -> str:
    """By how much a block is indented more than the statement that it belongs to; at a file's own level as its first
    block is, four spaces where it has none."""
    if owner is None:
        statements = (n for n in walk(file.tree) if isinstance(n, ast.stmt))
        nested = ((getattr(n, "body", None), n) for n in statements)
        first = next(((block, n) for block, n in nested if block and block[0].lineno > n.lineno), None)
        # The file's own habit, by its first block on lines of its own.
        return step_of(file, *first) if first is not None else "    "
    outer, inner = margin(file, owner), margin(file, body[0])
    # With tabs in one and spaces in the other no white space leads from one margin to the other.
    return inner[len(outer) :] if inner.startswith(outer) and inner != outer and not inner.strip() else ""


def _within_strings(file: SourceFile) -> set[int]:
    """Lines that begin within a string that goes over several."""
    found: set[int] = set()
    for node in walk(file.tree):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))):
            found.update(range(node.lineno + 1, (node.end_lineno or 0) + 1))
    return found


def under_with(file: SourceFile, statements: Sequence[ast.stmt], head: str) -> list[Edit]:
    """Put neighbouring statements under `with head:`; see `under`."""
    return under(file, statements, f"with {head}:")


def under(file: SourceFile, statements: Sequence[ast.stmt], header: str) -> list[Edit]:
    """Put neighbouring statements under a header, indented as the file's first block is; nothing where they share
    lines with others."""
    # A file may mix both: a tab's block is indented by a tab.
    tabs = margin(file, statements[0]).endswith("\t")
    return opened_around(file, statements, header, "\t" if tabs else step_of(file, file.tree.body, None))


def importing(file: SourceFile, module: str) -> list[Edit]:
    """`import module`, before the file's first import that the alphabet puts after it; else after the last import at
    the top. Imports of `__future__` stay first. Nothing where the file imports nothing."""
    last: ast.stmt | None = None
    for statement in file.tree.body:
        future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not isinstance(statement, (ast.Import, ast.ImportFrom)) or future:
            continue
        last = statement
        # A `from` import comes after all plain ones, as import sorters have it.
        if not (isinstance(statement, ast.Import) and statement.names[0].name < module):
            return edits.before(file, statement, f"import {module}")
    return edits.after(file, last, f"import {module}") if last is not None else []


def within(statement: ast.stmt, other: ast.stmt) -> bool:
    """Whether a statement is another, or lies in it."""
    return any(one is statement for one in walk(other))


def tried(code: ast.AST, statement: ast.stmt) -> bool:
    """Whether a statement lies in a `try` of some code: what follows may run although it was not done to its end."""
    path = path_to_node(code, statement) if isinstance(statement, ast.stmt) else []
    # By name: `ast.TryStar` is there from Python 3.11 on.
    return any(place.statement.__class__.__name__ in ("Try", "TryStar") for place in path)
