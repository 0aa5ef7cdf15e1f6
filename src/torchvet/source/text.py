"""The text of one file by lines, and pieces of it by syntax node."""

from __future__ import annotations

import ast
import re

_LINE_END = re.compile(r"\r\n|\r|\n")


class SourceText:
    """Lines as Python counts them: a form feed or a Unicode separator ends none. Lines count from 1."""

    def __init__(self, text: str) -> None:
        self.text = text.removeprefix("\ufeff")
        self.lines = _LINE_END.split(self.text)

    def line(self, number: int) -> str:
        """A line without the white space around it; empty where there is no such line."""
        return self.lines[number - 1].strip() if 0 < number <= len(self.lines) else ""

    def column(self, node: ast.expr | ast.stmt) -> int:
        """The first character of a node, counted from 1. The parser counts bytes from 0."""
        return len(self._from_bytes(node.lineno, 0, node.col_offset)) + 1

    def segment(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node, inner line ends and indentation included."""
        first, last = node.lineno, node.end_lineno or node.lineno
        if first == last:
            return self._from_bytes(first, node.col_offset, node.end_col_offset)
        head = self._from_bytes(first, node.col_offset, None)
        tail = self._from_bytes(last, 0, node.end_col_offset)
        return "\n".join([head, *self.lines[first : last - 1], tail])

    def _from_bytes(self, number: int, start: int, end: int | None) -> str:
        line = self.lines[number - 1] if number <= len(self.lines) else ""
        if line.isascii():
            return line[start:end]
        return line.encode("utf-8", "surrogatepass")[start:end].decode("utf-8", "replace")
