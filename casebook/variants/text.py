"""Program text whose lines remember where they come from, so that a line can be followed through any rewriting."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

Place = tuple[str, int]
"""A file, relative to the folder of its case, and a line in it, from 1."""


@dataclass(frozen=True)
class Line:
    """One line without its end, and where it was before; None for a line that was put in."""

    text: str
    origin: Place | None = None

    def indented(self, by: int) -> Line:
        """The line further to the right."""
        return replace(self, text=" " * by + self.text if self.text else "")


@dataclass(frozen=True)
class Edit:
    """Characters of a text that become others. Lines count from 1, columns from 0; the end is not included."""

    line: int
    start: int
    end_line: int
    end: int
    new: str


@dataclass(frozen=True)
class Module:
    """The text of one module."""

    lines: tuple[Line, ...]

    @cached_property
    def text(self) -> str:
        """All of it."""
        return "".join(f"{line.text}\n" for line in self.lines)

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree. Raises SyntaxError."""
        return ast.parse(self.text)

    def span(self, node: ast.stmt) -> tuple[Line, ...]:
        """The lines of a statement, its decorators and the comments above it among them."""
        first = first_line(node)
        while first > 1 and self.lines[first - 2].text.lstrip().startswith("#"):
            first -= 1
        return self.lines[first - 1 : node.end_lineno]

    def column(self, line: int, offset: int) -> int:
        """A column in characters, of one that the syntax tree gives in bytes."""
        return len(self.lines[line - 1].text.encode()[:offset].decode())

    def edit(self, node: ast.expr, new: str) -> Edit:
        """The edit that puts something else in the place of an expression."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        start, end = self.column(node.lineno, node.col_offset), self.column(node.end_lineno, node.end_col_offset)
        return Edit(node.lineno, start, node.end_lineno, end, new)

    def edited(self, edits: Iterable[Edit]) -> Module:
        """The module with its edits made, which must not overlap."""
        lines = list(self.lines)
        for each in sorted(edits, key=lambda e: (e.line, e.start), reverse=True):
            head, tail = lines[each.line - 1].text[: each.start], lines[each.end_line - 1].text[each.end :]
            lines[each.line - 1 : each.end_line] = [replace(lines[each.line - 1], text=head + each.new + tail)]
        return Module(tuple(lines))

    def inside_strings(self) -> set[int]:
        """The lines that begin within a string: they must stay as they are."""
        strings = (n for n in ast.walk(self.tree) if isinstance(n, (ast.Constant, ast.JoinedStr)))
        return {
            line
            for node in strings
            if isinstance(node, ast.JoinedStr) or isinstance(node.value, (str, bytes))
            for line in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
            if '"""' in self.lines[node.lineno - 1].text or "'''" in self.lines[node.lineno - 1].text
        }


def first_line(node: ast.stmt) -> int:
    """The line on which a statement begins, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def read(folder: Path, file: str) -> Module:
    """A file of a case."""
    text = (folder / file).read_text(encoding="utf-8")
    return Module(tuple(Line(line, (file, number)) for number, line in enumerate(text.splitlines(), start=1)))


def written(text: str) -> tuple[Line, ...]:
    """Lines that come from nowhere."""
    return tuple(Line(line) for line in text.splitlines())


def write(module: Module, path: Path) -> None:
    """Leave a module in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(module.text, encoding="utf-8")


def spaced(blocks: Sequence[Sequence[Line]]) -> tuple[Line, ...]:
    """Blocks of lines with two empty lines between them."""
    lines: list[Line] = []
    for block in blocks:
        lines += [*written("\n\n"), *block] if lines else block
    return tuple(lines)
