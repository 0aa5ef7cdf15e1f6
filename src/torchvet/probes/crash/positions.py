"""Finds the expression that a frame was evaluating.

From Python 3.11 on code knows the columns of each instruction; before, the whole statement is taken.
"""

from __future__ import annotations

import ast
import itertools
import linecache
from functools import lru_cache
from types import CodeType
from typing import Union

Node = Union[ast.expr, ast.stmt]  # noqa: UP007


# Each frame of the traceback asks for its file, several times; a traceback touches few files of the program's.
@lru_cache(maxsize=16)
def tree(path: str) -> ast.Module | None:
    """A file's statements; None where it cannot be read or parsed."""
    try:
        return ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError, RecursionError):
        return None


def forget() -> None:
    """Forget the files that were read."""
    tree.cache_clear()


def evaluated(code: CodeType, line: int, instruction: int) -> Node | None:
    """The smallest expression, or the statement, that an instruction belongs to."""
    parsed = tree(code.co_filename)
    if parsed is None:
        return None
    span = _span(code, instruction)
    around: Node | None = None
    for node in ast.walk(parsed):
        if not isinstance(node, (ast.expr, ast.stmt)):
            continue
        here = (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
        if isinstance(node, ast.expr) and here == span:
            return node
        if node.lineno <= line <= (node.end_lineno or node.lineno) and isinstance(node, _SIMPLE):
            around = node
    return around


_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return, ast.Assert, ast.Delete)


def _span(code: CodeType, instruction: int) -> tuple[int, int, int, int] | None:
    if not hasattr(code, "co_positions") or instruction < 0:
        return None
    # `co_positions` has an entry for each code unit of two bytes; instructions are counted in bytes.
    found = next(itertools.islice(code.co_positions(), instruction // 2, None), None)
    return found if found is not None and None not in found else None
