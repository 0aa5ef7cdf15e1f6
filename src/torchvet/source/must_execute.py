"""Whether a line must have run, from lines that were seen running: statements of one block run in order."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from torchvet.source.statements import DEFINITIONS, defined_in, first_line, last_line, leaves, path_to_line


def reached(tree: ast.Module, seen: Collection[int], line: int) -> bool:
    """Whether the statement at `line` ran, given lines that did. False where the text does not show it.

    It ran where a line of it or after it in its block did; or one before it, with nothing in between that leaves.
    """
    path = path_to_line(tree, line)
    if not path:
        return False
    place = path[-1]
    # A line that the block shares with its head, `if x: statement`, is seen where only the head ran.
    head = _head(path[-2].statement) if len(path) > 1 else 0
    ran = [any(n in seen and n != head for n in _lines(s)) for s in place.block]
    if any(ran[place.position :]):
        return True
    before = max((i for i in range(place.position) if ran[i]), default=None)
    return before is not None and not any(leaves(s) for s in place.block[before : place.position])


def _head(statement: ast.stmt) -> int:
    """The line on which the head of a compound statement ends."""
    parts = [getattr(statement, name, None) for name in ("test", "iter", "subject", "returns")]
    return max([statement.lineno, *(p.end_lineno or 0 for p in parts if p is not None)])


def _lines(statement: ast.stmt) -> Iterator[int]:
    """A statement's lines, without those of functions that it only defines. A definition's own are all its lines."""
    inner = () if isinstance(statement, DEFINITIONS) else defined_in(statement)
    skipped = {n for d in inner for n in range(first_line(d), last_line(d) + 1)}
    return (n for n in range(first_line(statement), last_line(statement) + 1) if n not in skipped)
