"""Whether a statement is there to be timed: copies whose results nobody wants are made to see what they take."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchvet.source.model.walking import walk

_CLOCKS = frozenset(("synchronize", "perf_counter", "perf_counter_ns", "time", "time_ns", "monotonic", "monotonic_ns",
                     "process_time", "default_timer", "record", "elapsed_time"))  # fmt: skip
"""What is called right after work that is to be timed; `record` is an event's."""
_TIMING = re.compile(r"time|clock|bench|measur|profil|record_function", re.IGNORECASE)
"""Names of blocks in which something is timed."""
_BLOCKS = ("body", "orelse", "finalbody")


def is_timed(tree: ast.AST, call: ast.expr) -> bool:
    """Whether the statement that a call is, by its place, is followed by a clock or by waiting for the device, itself
    or the loops around it that it ends, or stands alone in a block that by its name times something."""
    return _in_block(tree, (call.lineno, call.col_offset)) is True


def _in_block(node: ast.AST, at: tuple[int, int]) -> bool | None:
    """None: whatever follows the node decides."""
    for block in _blocks(node):
        for place, statement in enumerate(block):
            if not (statement.lineno, statement.col_offset) <= at < _end(statement):
                continue
            found = _in_block(statement, at)
            if found is None and isinstance(statement, (ast.With, ast.AsyncWith)) and _times(statement):
                return True
            if found is None and place + 1 < len(block):
                return _reads_clock(block[place + 1])
            return False if found is None and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else found
    return None


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Of a statement, those of its `except` clauses included."""
    yield from (block for name in _BLOCKS if isinstance(block := getattr(node, name, None), list))
    yield from (handler.body for handler in getattr(node, "handlers", ()))


def _end(node: ast.stmt) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset + 1


def _times(block: ast.With | ast.AsyncWith) -> bool:
    return any(_TIMING.search(_called(n)) for i in block.items for n in walk(i.context_expr))


def _reads_clock(statement: ast.stmt) -> bool:
    return any(isinstance(n, ast.Call) and _called(n.func) in _CLOCKS for n in walk(statement))


def _called(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
