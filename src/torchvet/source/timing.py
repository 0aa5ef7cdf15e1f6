"""Whether a statement runs to be timed: its result is thrown away on purpose."""

from __future__ import annotations

import ast
import re

from torchvet.source.statements import path_to_node
from torchvet.source.text import words
from torchvet.source.walking import walk

_CLOCKS = words("""
    synchronize perf_counter perf_counter_ns time time_ns monotonic monotonic_ns process_time default_timer record
    elapsed_time
""")
"""What a program calls right after timed work; `record` is an event's method."""
_TIMING = re.compile(r"time|clock|bench|measur|profil|record_function", re.IGNORECASE)
"""Names of blocks in which something is timed."""


def is_timed(tree: ast.AST, call: ast.expr) -> bool:
    """Whether a clock or a wait for the device follows the statement at a call's place, or the loops that it ends; or
    whether the statement stands in a block whose name says that it times something."""
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
