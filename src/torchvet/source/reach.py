"""Whether a line must have run, from lines that were seen running: statements of one block run in order."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def reached(tree: ast.Module, seen: Collection[int], line: int) -> bool:
    """Whether the statement at `line` ran, given lines that did. False where that cannot be told.

    It ran where a line of it or after it in its block did; or one before it, with nothing in between that leaves.
    """
    block, index, head = _innermost(tree.body, line, 0)
    if index is None:
        return False
    # A line that the block shares with its head, `if x: statement`, is seen where only the head ran.
    ran = [any(n in seen and n != head for n in _lines(s)) for s in block]
    if any(ran[index:]):
        return True
    before = max((i for i in range(index) if ran[i]), default=None)
    return before is not None and not any(leaves(s) for s in block[before:index])


def _innermost(block: Sequence[ast.stmt], line: int, head: int) -> tuple[Sequence[ast.stmt], int | None, int]:
    """The smallest block that has a statement around a line, that statement's place in it, and the last line of the
    head that the block stands under."""
    index = next((i for i, s in enumerate(block) if first_line(s) <= line <= (s.end_lineno or s.lineno)), None)
    if index is None:
        return block, None, head
    for inner in blocks(block[index]):
        found, place, under = _innermost(inner, line, _head(block[index]))
        if place is not None:
            return found, place, under
    return block, index, head


def _head(statement: ast.stmt) -> int:
    """The line on which the head of a compound statement ends."""
    parts = [getattr(statement, name, None) for name in ("test", "iter", "subject", "returns")]
    return max([statement.lineno, *(p.end_lineno or 0 for p in parts if p is not None)])


def blocks(node: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    """The blocks of a compound statement."""
    for name in ("body", "orelse", "finalbody"):
        yield getattr(node, name, ())
    for name in ("handlers", "cases"):
        yield from (part.body for part in getattr(node, name, ()))


def first_line(node: ast.stmt) -> int:
    """The first line, decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def _lines(statement: ast.stmt) -> Iterator[int]:
    """A statement's lines, without those of functions that it only defines. A definition's own are all its lines."""
    inner = () if isinstance(statement, _DEFINITIONS) else _defined_in(statement)
    left_out = {n for d in inner for n in range(first_line(d), (d.end_lineno or d.lineno) + 1)}
    return (n for n in range(first_line(statement), (statement.end_lineno or 0) + 1) if n not in left_out)


def _defined_in(statement: ast.stmt) -> Iterator[ast.stmt]:
    return (n for n in ast.walk(statement) if isinstance(n, _DEFINITIONS))


def leaves(statement: ast.stmt, exits: tuple[type[ast.stmt], ...] = _EXITS) -> bool:
    """Whether control may leave the block within a statement, by these kinds of statement."""
    inside = {id(n) for d in _defined_in(statement) for n in ast.walk(d)}
    return any(isinstance(n, exits) and id(n) not in inside for n in ast.walk(statement))
