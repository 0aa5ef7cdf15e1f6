"""A `with` that opens an autocast region as lines: its head taken out, and put before other statements."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from torchvet.rules.kit import Edit, Sequence, SourceFile
from torchvet.source.model import Unit, blocks, edits, names_bound, names_in


@dataclass(frozen=True)
class Opening:
    """A `with` that opens one region and nothing else, with the lines of its head and its code."""

    file: SourceFile
    node: ast.With
    first: int
    """The first line of its body: that after its head."""
    outer: str
    inner: str

    @property
    def body(self) -> list[ast.stmt]:
        """The statements in it."""
        return self.node.body

    @property
    def lines(self) -> range:
        """The lines of its body."""
        return range(self.first, blocks.last_line(self.node) + 1)

    @property
    def can_move(self) -> bool:
        """Whether no name in the expression that opens it is bound anew in it: there it would mean another thing."""
        bound = names_bound(self.body)
        return not any(names_in(item.context_expr) & bound for item in self.node.items)

    def taken_away(self, kept: Sequence[int] = ()) -> list[Edit]:
        """The head taken out and the body dedented, but for the lines that are kept as they are."""
        moved = blocks.dedented(self.file, [n for n in self.lines if n not in kept], self.inner, self.outer)
        head = Edit(path=self.file.path, start=(self.node.lineno, 1), end=(self.first, 1), text="")
        return [head, *moved] if moved is not None else []

    def header_before(self, statement: ast.stmt) -> list[Edit]:
        """The head put before a statement of the body that keeps its lines as they are: one level further out, where
        these then are its body."""
        own = blocks.margin(self.file, statement)
        margin = self.outer + own[len(self.inner) :]
        if own.strip() or not own.startswith(self.inner) or not own.startswith(margin):
            return []
        rows = self.file.lines[self.node.lineno - 1 : self.first - 1]
        text = "".join(f"{margin}{row[len(self.outer) :]}{self.file.newline}" for row in rows)
        return [edits.insert(self.file, (blocks.first_line(statement), 1), text)]


def opening(file: SourceFile, node: ast.AST, at: Unit) -> Opening | None:
    """The `with` statement that an expression opens a region in; None where it has more items, binds a name, or its
    head does not end on a line of its own."""
    found = (e.node for e in at.events if isinstance(e.node, ast.With) and len(e.node.items) == 1)
    opened = next((w for w in found if w.items[0].context_expr is node and w.items[0].optional_vars is None), None)
    if opened is None:
        return None
    outer, inner = blocks.margin(file, opened), blocks.margin(file, opened.body[0])
    plain = not (outer + inner).strip() and inner.startswith(outer) and inner != outer
    last = _end_of_head(file, opened)
    if not last or not plain or any(not row.startswith(outer) for row in file.lines[opened.lineno - 1 : last]):
        return None
    return Opening(file, opened, last + 1, outer, inner)


def _end_of_head(file: SourceFile, opened: ast.With) -> int:
    """The last line of a `with` statement's head, which ends in a colon; 0 where none does."""
    # A head may go over several lines, and comments may stand between it and its body.
    numbers = range(blocks.first_line(opened.body[0]) - 1, opened.lineno - 1, -1)
    return next((n for n in numbers if file.lines[n - 1].partition("#")[0].rstrip().endswith(":")), 0)
