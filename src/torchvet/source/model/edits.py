"""Edits to a file that leave everything around them as it was written."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from torchvet.finding import Edit

if TYPE_CHECKING:
    from torchvet.source.model.file import SourceFile

_COMMA = re.compile(r"\s*,")
_HEADER_ENDS = re.compile(r"\s*,?\s*\)\s*(:|->)")
"""What follows the last parameter of a function."""
_CLOSED = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
"""Expressions that a method can be called on without brackets."""


def insert(file: SourceFile, place: tuple[int, int], text: str) -> Edit:
    """Put a text at a line and column, both from 1."""
    return Edit(path=file.path, start=place, end=place, text=text)


def replace(file: SourceFile, node: ast.expr | ast.stmt | ast.keyword, text: str) -> Edit:
    """Put a text in the place of a node."""
    return Edit(path=file.path, start=start_of(file, node), end=end_of(file, node), text=text)


def start_of(file: SourceFile, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
    """Line and column of a node's first character, from 1."""
    return node.lineno, file.column(node.lineno, node.col_offset)


def end_of(file: SourceFile, node: ast.expr | ast.stmt | ast.keyword | ast.arg | ast.alias) -> tuple[int, int]:
    """Line and column right after a node's last character, from 1."""
    line = node.end_lineno or node.lineno
    return line, file.column(line, node.end_col_offset or node.col_offset)


def text_between(file: SourceFile, start: tuple[int, int], stop: tuple[int, int]) -> str:
    """The text from one place to another, each a line and a column from 1."""
    rows = file.lines[start[0] - 1 : stop[0]]
    # The last row first: where both are one row, cutting its beginning would shift the end.
    rows[-1] = rows[-1][: stop[1] - 1]
    rows[0] = rows[0][start[1] - 1 :]
    return "\n".join(rows)


def on_one_line(node: ast.expr | ast.stmt) -> bool:
    """Whether a node begins and ends on the same line."""
    return node.lineno == node.end_lineno


def operand(file: SourceFile, node: ast.expr) -> str:
    """A node's text as a part of another expression: in brackets where it needs them."""
    text = file.segment(node)
    # `a + b` would give `.float()` to `b` alone.
    return text if isinstance(node, _CLOSED) else f"({text})"


def called_on(file: SourceFile, node: ast.expr, method: str) -> Edit:
    """A method called on an expression that stands on one line: `x.float()` for `x`, `(a + b).float()` for `a + b`."""
    return replace(file, node, f"{operand(file, node)}.{method}")


def margin(file: SourceFile, statement: ast.stmt) -> str:
    """What stands before a statement on its line: white space, where it begins the line."""
    return file.lines[statement.lineno - 1][: start_of(file, statement)[1] - 1]


def stands_alone(file: SourceFile, statement: ast.stmt) -> bool:
    """Whether a statement has its lines to itself: no `;`, no `if x: statement` on one line."""
    line, column = end_of(file, statement)
    after = file.lines[line - 1][column - 1 :].strip()
    return not margin(file, statement).strip() and (not after or after.startswith("#"))


def before(file: SourceFile, statement: ast.stmt, code: str) -> list[Edit]:
    """A line of code before a statement, at its indentation; nothing where the statement shares its line."""
    place = (statement.lineno, 1)
    return _inserted(file, statement, place, f"{margin(file, statement)}{code}{file.newline}")


def after(file: SourceFile, statement: ast.stmt, code: str) -> list[Edit]:
    """A line of code after a statement, at its indentation; nothing where the statement shares its line."""
    line, _ = end_of(file, statement)
    # Behind a comment, too, that ends the statement's line.
    place = (line, len(file.lines[line - 1]) + 1)
    return _inserted(file, statement, place, f"{file.newline}{margin(file, statement)}{code}")


def _inserted(file: SourceFile, statement: ast.stmt, place: tuple[int, int], text: str) -> list[Edit]:
    return [insert(file, place, text)] if stands_alone(file, statement) else []


def before_the_bracket(file: SourceFile, node: ast.expr | ast.arg, text: str) -> list[Edit]:
    """A text behind the last parameter of a function, before the bracket that closes them; nothing where the parameter
    ends in a bracket of its own, behind which nothing may be put, or where a comment stands."""
    line, column = place = end_of(file, node)
    # Two lines more: the comma and the bracket may have one each.
    rest = "\n".join([file.lines[line - 1][column - 1 :], *file.lines[line : line + 2]])
    return [insert(file, place, text)] if _HEADER_ENDS.match(rest) else []


def with_argument(file: SourceFile, call: ast.Call, text: str) -> list[Edit]:
    """One more argument at the end of a call; nothing where its last one stands in brackets of its own."""
    line, column = end_of(file, call)
    # `**options` may stand before other arguments: the last one is told by its place.
    given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    if not given:
        # Over several lines a comment may stand in the empty brackets.
        return [insert(file, (line, column - 1), text)] if on_one_line(call) else []
    last = max(given, key=lambda n: (n.end_lineno or 0, n.end_col_offset or 0))
    start = end_of(file, last)
    # `f((x))`: after the last argument stands a bracket of its own, behind which nothing may be put.
    rows = text_between(file, start, (line, column - 1)).splitlines()
    between = "".join(row.partition("#")[0].strip() for row in rows)
    # A generator beside another argument needs brackets of its own.
    if between not in ("", ",") or isinstance(last, ast.GeneratorExp):
        return []
    return [insert(file, start, f", {text}")]


def without_argument(file: SourceFile, call: ast.Call, keyword: str) -> list[Edit]:
    """Take a keyword argument out of a call, with its comma; nothing where comments or line ends make that unsure."""
    given: list[ast.expr | ast.keyword] = sorted([*call.args, *call.keywords], key=lambda n: (n.lineno, n.col_offset))
    index = next((i for i, one in enumerate(given) if isinstance(one, ast.keyword) and one.arg == keyword), None)
    if index is None:
        return []
    one = given[index]
    if index > 0:
        start, stop = end_of(file, given[index - 1]), end_of(file, one)
    elif len(given) > 1:
        start, stop = start_of(file, one), start_of(file, given[1])
    else:
        start, (line, column) = start_of(file, one), end_of(file, one)
        # The only argument may have a comma behind it.
        comma = _COMMA.match(file.lines[line - 1], column - 1)
        stop = line, column + len(comma[0]) if comma is not None else column
    # What is left of two rows may need another indentation.
    if start[0] != stop[0]:
        return []
    between = file.lines[start[0] - 1][start[1] - 1 : stop[1] - 1]
    bracketed = index > 0 and not between.lstrip().startswith(",")  # `step((closure), grad_scaler=None)`
    return [] if "#" in between or bracketed else [Edit(path=file.path, start=start, end=stop, text="")]
