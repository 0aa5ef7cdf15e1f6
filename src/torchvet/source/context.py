"""Finds the lines of custom autograd Functions that set attributes of their `ctx`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_SETTERS = {"mark_dirty", "needs_input_grad", "materialize_grads"}


@dataclass(frozen=True)
class ContextStore:
    """`ctx.attribute = value` in a Function's `forward`; lines and columns count from 1."""

    line: int
    column: int
    function: str
    attribute: str


def context_stores(text: str) -> list[ContextStore]:
    """All such lines of a file, those that store a plain literal last. Nothing for text that does not parse."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    found = list(_in_classes(tree))
    found.sort(key=lambda pair: pair[0])
    return [store for _, store in found]


def _in_classes(tree: ast.AST) -> Iterator[tuple[bool, ContextStore]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or not any(ast.unparse(b).endswith("Function") for b in node.bases):
            continue
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name in ("forward", "setup_context") and method.args.args:
                yield from _in_method(node.name, method)


def _in_method(owner: str, method: ast.FunctionDef) -> Iterator[tuple[bool, ContextStore]]:
    name = method.args.args[0].arg
    for node in ast.walk(method):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == name:
                    if one.attr in _SETTERS:
                        continue  # torch's own switches, which keep nothing
                    store = ContextStore(one.lineno, one.col_offset + 1, f"{owner}.{method.name}", one.attr)
                    yield isinstance(node.value, ast.Constant), store
