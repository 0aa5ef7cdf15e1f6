"""Finds the lines of custom autograd Functions that set attributes of their `ctx`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from torchvet.source.syntax import pairs, parse

_STORING = ("forward", "setup_context")
_SETTERS = {"mark_dirty", "needs_input_grad", "materialize_grads"}
"""Torch's own switches, which keep nothing."""


@dataclass(frozen=True)
class ContextStore:
    """`ctx.attribute = value` in a Function's `forward`; lines and columns count from 1."""

    line: int
    column: int
    function: str
    attribute: str


def context_stores(text: str) -> list[ContextStore]:
    """All such lines of a file, those that store a plain literal last. Nothing for text that does not parse."""
    found = [pair for method in _methods(parse(text)) for pair in _in_method(*method)]
    return [store for _, store in sorted(found, key=lambda pair: pair[0])]


def _methods(tree: ast.Module | None) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The methods that are given a `ctx` to store into, each with its class's name."""
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.ClassDef) and any(ast.unparse(b).endswith("Function") for b in node.bases):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name in _STORING and method.args.args:
                    yield node.name, method


def _in_method(owner: str, method: ast.FunctionDef) -> Iterator[tuple[bool, ContextStore]]:
    """The attributes of `ctx` that a method sets, each with whether its value is a literal."""
    name = method.args.args[0].arg
    for node in ast.walk(method):
        if not isinstance(node, ast.Assign):
            continue
        for one in (one for target in node.targets for one, _, _ in pairs(target, node.value)):
            if not isinstance(one, ast.Attribute) or one.attr in _SETTERS:
                continue
            if isinstance(one.value, ast.Name) and one.value.id == name:
                store = ContextStore(one.lineno, one.col_offset + 1, f"{owner}.{method.name}", one.attr)
                yield isinstance(node.value, ast.Constant), store
