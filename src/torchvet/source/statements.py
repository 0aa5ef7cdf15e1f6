"""Statements and their blocks: which block holds a place, what stands around it, what control does between the two."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Place(NamedTuple):
    """A statement in its block. `owner` is the node that the block belongs to, `field` the block's name in it:
    `body`, `orelse`, `finalbody`, `handlers` or `cases`."""

    block: list[ast.stmt]
    position: int
    field: str
    owner: ast.AST

    @property
    def statement(self) -> ast.stmt:
        """The statement itself."""
        return self.block[self.position]

    @property
    def before(self) -> list[ast.stmt]:
        """What stands before it in its block."""
        return self.block[: self.position]

    @property
    def after(self) -> list[ast.stmt]:
        """What stands after it in its block."""
        return self.block[self.position + 1 :]


def blocks(node: ast.AST) -> Iterator[tuple[str, list[ast.stmt]]]:
    """The blocks of a module or compound statement, each with its name."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):  # a lambda's body is an expression
            yield name, block
    for name in ("handlers", "cases"):
        yield from ((name, part.body) for part in getattr(node, name, ()))


def path_to(root: ast.AST, holds: Callable[[ast.stmt], bool]) -> list[Place]:
    """The statements around a place, from the blocks of `root` inward; the last is the smallest.

    `holds` says whether a statement is around the place.
    """
    # Blocks of one node never overlap, so the first that holds the place is the only one.
    found: list[Place] = []
    node: ast.AST | None = root
    while node is not None:
        owner, node = node, None
        for name, block in blocks(owner):
            position = next((i for i, statement in enumerate(block) if holds(statement)), None)
            if position is not None:
                found.append(Place(block, position, name, owner))
                node = block[position]
                break
    return found


def path_to_line(root: ast.AST, line: int) -> list[Place]:
    """The statements around a line, outermost first."""
    return path_to(root, lambda s: first_line(s) <= line <= last_line(s))


def path_to_node(root: ast.AST, node: ast.expr | ast.stmt) -> list[Place]:
    """The statements around a node, outermost first, by the node's position: several may share a line."""
    # Positions in bytes on both sides, as the parser counts them.
    at = (node.lineno, node.col_offset)
    return path_to(root, lambda s: (s.lineno, s.col_offset) <= at < (last_line(s), s.end_col_offset or 0))


def first_line(node: ast.stmt | ast.expr) -> int:
    """The first line of a statement, its decorators included."""
    # A `def`'s own line is that of the word `def`, below its decorators.
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def last_line(node: ast.stmt | ast.expr) -> int:
    """The last line of a statement."""
    return node.end_lineno or node.lineno


def spans(block: Sequence[ast.stmt | ast.expr], line: int) -> bool:
    """Whether a line lies within a block."""
    return bool(block) and first_line(block[0]) <= line <= last_line(block[-1])


def defined_in(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The functions and classes that a statement defines; their bodies run later, if at all."""
    return (n for n in ast.walk(statement) if isinstance(n, DEFINITIONS))


def leaves(statement: ast.stmt, exits: tuple[type[ast.stmt], ...] = _EXITS) -> bool:
    """Whether control may leave the block within a statement, by these kinds of statement."""
    # A `return` in a nested function leaves that one only.
    inside = {id(n) for d in defined_in(statement) for n in ast.walk(d)}
    return any(isinstance(n, exits) and id(n) not in inside for n in ast.walk(statement))
