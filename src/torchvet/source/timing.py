"""Whether a statement runs to be timed: its result is thrown away on purpose."""

from __future__ import annotations

import ast
import re

from torchvet.source.statements import path_to_node
from torchvet.source.syntax import ident
from torchvet.source.text import name_set
from torchvet.source.walking import walk

_CLOCKS = name_set("""
    synchronize perf_counter perf_counter_ns time time_ns monotonic monotonic_ns process_time default_timer record
    elapsed_time
""")
"""What a program calls right after timed work; `record` is an event's method."""
_TIMING = re.compile(r"time|clock|bench|measur|profil|record_function", re.IGNORECASE)
"""Names of blocks in which something is timed."""


def is_timed(tree: ast.AST, call: ast.expr) -> bool:
    """Whether a clock or a wait for the device follows a call's statement, or a `with` around it names timing."""
    for place in reversed(path_to_node(tree, call)):
        for item in getattr(place.statement, "items", ()):  # of a `with` statement
            if any(_TIMING.search(ident(n)) for n in walk(item.context_expr)):
                return True
        # Only what comes right after: a clock further down times something else.
        if place.after:
            return any(isinstance(n, ast.Call) and ident(n.func) in _CLOCKS for n in walk(place.after[0]))
        if isinstance(place.owner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
    return False
