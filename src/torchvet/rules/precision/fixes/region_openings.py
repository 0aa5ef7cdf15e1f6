"""A `with` that opens an autocast region as lines: its head taken out, and put before other statements."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from torchvet.rules.kit import Edit, Sequence, SourceFile
from torchvet.source.model import Unit, blocks, walk


@dataclass(frozen=True)
class Opening:
    """A `with` that opens one region and nothing else, with the lines of its head and its code."""

    node: ast.With
    lines: tuple[int, int]
    header: str
    outer: str
    inner: str


def opening(file: SourceFile, node: ast.AST, at: Unit) -> Opening | None:
    """The `with` statement that an expression opens a region in; None where it has more items, binds a name, or its
    head cannot be told from its body by lines."""
    found = next((e.node for e in at.events if isinstance(e.node, ast.With)
                  and any(i.context_expr is node for i in e.node.items)), None)  # fmt: skip
    if not isinstance(found, ast.With) or len(found.items) != 1 or found.items[0].optional_vars is not None:
        return None
    body, outer = found.body[0], blocks.margin(file, found)
    last = next((n for n in range(blocks.first_line(body) - 1, found.lineno - 1, -1)
                 if file.lines[n - 1].partition("#")[0].rstrip().endswith(":")), 0)  # fmt: skip
    inner = blocks.margin(file, body)
    if not last or outer.strip() or inner.strip() or not inner.startswith(outer) or inner == outer:
        return None
    rows = file.lines[found.lineno - 1 : last]
    if any(not row.startswith(outer) for row in rows):
        return None
    return Opening(found, (found.lineno, last), "\n".join(row[len(outer) :] for row in rows), outer, inner)


def taken_away(file: SourceFile, at: Opening, kept: Sequence[int] = ()) -> list[Edit] | None:
    """The head of a `with` taken out and its body dedented, but for the lines that are kept as they are."""
    first, last = at.lines[1] + 1, blocks.last_line(at.node)
    lines = [n for n in range(first, last + 1) if n not in kept]
    moved = blocks.dedented(file, lines, at.inner, at.outer)
    if moved is None:
        return None
    return [Edit(path=file.path, start=(at.lines[0], 1), end=(first, 1), text=""), *moved]


def header_before(file: SourceFile, at: Opening, statement: ast.stmt) -> Edit | None:
    """The head of a `with` put before a statement of its body that keeps its lines as they are: one level further out,
    where these then are its body."""
    own = blocks.margin(file, statement)
    if own.strip() or not own.startswith(at.inner):
        return None
    put = at.outer + own[len(at.inner) :]
    if not own.startswith(put):
        return None
    text = "".join(f"{put}{row}{file.newline}" for row in at.header.split("\n"))
    first = (blocks.first_line(statement), 1)
    return Edit(path=file.path, start=first, end=first, text=text)


def is_rebound(file: SourceFile, at: Opening) -> bool:
    """Whether a name in the expression that opens a region is bound anew in it: there it would mean another thing."""
    names = {n.id for item in at.node.items for n in walk(item.context_expr) if isinstance(n, ast.Name)}
    bound = (n for s in at.node.body for n in walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return any(n.id in names for n in bound)
