"""The text of one file by lines, and pieces of it by syntax node."""

from __future__ import annotations

import re
from itertools import accumulate, count
from operator import add
from typing import TYPE_CHECKING

from torchvet.source.lazily import lazy

if TYPE_CHECKING:
    import ast

LINE_END = re.compile(r"\r\n|\r|\n")


def name_set(text: str) -> frozenset[str]:
    """The names in a text, which white space separates: so a table of names stays a few plain lines."""
    return frozenset(text.split())


def split_lines(text: str) -> list[str]:
    """Lines as Python counts them, without their ends: a form feed or a Unicode separator ends none."""
    if "\r" in text:
        text = LINE_END.sub("\n", text)
    return text.split("\n")


def line_starts(text: str) -> list[int]:
    """The offset that each line begins at."""
    if "\r" in text:
        return [0, *(match.end() for match in LINE_END.finditer(text))]
    # `count()` adds the line ends that `split` has taken out.
    return list(map(add, accumulate(map(len, text.split("\n")[:-1]), initial=0), count()))


class SourceText:
    """A text with its lines. Lines and columns count from 1, columns in characters: the parser counts bytes from 0."""

    def __init__(self, text: str) -> None:
        self.text = text.removeprefix("\ufeff")

    @lazy
    def lines(self) -> list[str]:
        """The text's lines."""
        return split_lines(self.text)

    def line(self, number: int) -> str:
        """A line without the white space around it; empty where there is no such line."""
        return self.lines[number - 1].strip() if 0 < number <= len(self.lines) else ""

    def column_at(self, line: int, offset: int) -> int:
        """The column of a byte offset in a line."""
        # Most lines are ASCII, where a byte is a character. `surrogatepass`: a text may hold what no file can.
        text = self.lines[line - 1]
        return (
            offset + 1
            if text.isascii()
            else len(text.encode("utf-8", "surrogatepass")[:offset].decode(errors="ignore")) + 1
        )

    def column(self, node: ast.expr | ast.stmt) -> int:
        """The column of a node's first character."""
        return self.column_at(node.lineno, node.col_offset)

    def rows(self, node: ast.expr | ast.stmt) -> list[str]:
        """The text of a node by lines, inner indentation included."""
        first, last = node.lineno, node.end_lineno or node.lineno
        rows = self.lines[first - 1 : last]
        # The end first, as of one row both are cut, and both by the whole row's columns.
        rows[-1] = rows[-1][: self.column_at(last, node.end_col_offset or 0) - 1]
        rows[0] = rows[0][self.column(node) - 1 :]
        return rows

    def segment(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node, inner line ends and indentation included."""
        return "\n".join(self.rows(node))
