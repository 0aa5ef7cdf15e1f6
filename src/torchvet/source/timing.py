"""Whether a statement is there to be timed: copies whose results nobody wants are made to see what they take."""

from __future__ import annotations

import ast
import re

from torchvet.source.model.walking import walk
from torchvet.source.statements import path_to_node

_CLOCKS = frozenset(("synchronize", "perf_counter", "perf_counter_ns", "time", "time_ns", "monotonic", "monotonic_ns",
                     "process_time", "default_timer", "record", "elapsed_time"))  # fmt: skip
"""What is called right after work that is to be timed; `record` is an event's."""
_TIMING = re.compile(r"time|clock|bench|measur|profil|record_function", re.IGNORECASE)
"""Names of blocks in which something is timed."""


def is_timed(tree: ast.AST, call: ast.expr) -> bool:
    """Whether the statement that a call is, by its place, is followed by a clock or by waiting for the device, itself
    or the loops around it that it ends, or stands alone in a block that by its name times something."""
    for place in reversed(path_to_node(tree, call)):
        if isinstance(place.statement, (ast.With, ast.AsyncWith)) and _times(place.statement):
            return True
        if place.after:
            return _reads_clock(place.after[0])
        if isinstance(place.owner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
    return False


def _times(block: ast.With | ast.AsyncWith) -> bool:
    return any(_TIMING.search(_called(n)) for i in block.items for n in walk(i.context_expr))


def _reads_clock(statement: ast.stmt) -> bool:
    return any(isinstance(n, ast.Call) and _called(n.func) in _CLOCKS for n in walk(statement))


def _called(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
