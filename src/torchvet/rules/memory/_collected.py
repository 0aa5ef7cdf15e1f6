"""Lists that are meant to grow: what a loop that trains nothing collects, its function joins and returns."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Growth, Iterator, Recording
from torchvet.source.model import is_call, is_name, under_methods, walk
from torchvet.source.syntax import parts

_SHOWN = 0.9
"""Share of the bytes held that the items show. Views that pin larger storages, and graphs, are no result."""
_PASSES = 10_000
"""Passes that memory must last for: one way through a data set, as ImageNet's 1.3 million pictures by 128."""
_JOINS = {"cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "row_stack", "column_stack"}
_KEEPING = {"numpy", "cpu", "cuda", "to", "detach", "clone", "contiguous", "float", "half", "reshape", "view", "tolist"}
"""Methods whose result is as large as what they are called on."""
_ENDLESS = {"count", "cycle", "repeat", "iter"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def result_of(growth: Growth, recording: Recording) -> str:
    """The function whose result a growing list is; empty where it is none, or memory may not last for it."""
    name, _, path, _ = growth.holding.where
    # Cheapest first: most growth is no result.
    file = recording.model(path) if _may_be_result(growth) else None
    stores = recording.index.stores(*growth.holding.where) if file is not None else []
    lines = [s.line for s in stores if s.path == path and s.in_loop]
    for function in (n for n in (walk(file.tree) if file is not None else ()) if isinstance(n, _Function)):
        loops = _loops(function, lines)
        if loops and not any(map(_is_endless, loops)):
            last = max(loop.end_lineno or 0 for loop in loops)
            if _returns_joined(function, name, last):
                return function.name
    return ""


def _may_be_result(growth: Growth) -> bool:
    """Whether a variable of a loop that trains nothing grows by whole items, and memory lasts for a pass of data."""
    if growth.kind == "training" or len(growth.holding.path) != 1:
        return False
    # In evaluation batches, of which one pass of data has so many.
    lasts = growth.exhausted_at is None or growth.exhausted_at - growth.last_step > _PASSES
    return lasts and growth.visible_per_step >= _SHOWN * growth.bytes_per_step > 0


def _loops(function: _Function, lines: list[int]) -> list[ast.stmt]:
    """The loops of a function around all lines that store; none where a line has no loop there."""
    found = [n for n in walk(function) if isinstance(n, (ast.For, ast.AsyncFor, ast.While))]
    around = [[loop for loop in found if loop.lineno <= line <= (loop.end_lineno or 0)] for line in lines]
    # One store elsewhere, and what is returned is not all there is.
    return [loop for loops in around for loop in loops] if all(around) else []


def _is_endless(loop: ast.stmt) -> bool:
    """Whether a loop ends for no reason that its head shows."""
    if not isinstance(loop, (ast.For, ast.AsyncFor)):
        return True
    # `itertools.count()` and the like.
    return any(is_call(n, *_ENDLESS) for n in walk(loop.iter))


def _returns_joined(function: _Function, name: str, last: int) -> bool:
    """Whether a function returns, after a line, what it joins a list to: at once, or by a name."""
    later = [n for n in walk(function) if isinstance(n, (ast.Assign, ast.Return)) and n.lineno > last]
    joins = (n for n in later if isinstance(n, ast.Assign) and _joins(n.value, name))
    joined = {ast.unparse(t) for n in joins for t in n.targets}
    items = (item for n in later if isinstance(n, ast.Return) for item in _items(n.value))
    return any(_joins(item, name) or ast.unparse(item) in joined for item in items)


def _items(value: ast.expr | None) -> Iterator[ast.expr]:
    """What is returned, one by one, without methods that keep its size."""
    if isinstance(value, (ast.Tuple, ast.List, ast.Dict)):
        for item in parts(value):
            yield from _items(item)
    elif value is not None:
        yield under_methods(value, _KEEPING) or value


def _joins(value: ast.expr, name: str) -> bool:
    """Whether a value is the join of a list by that name."""
    call = under_methods(value, _KEEPING)
    return is_call(call, *_JOINS) and any(is_name(a, name) for a in call.args)
