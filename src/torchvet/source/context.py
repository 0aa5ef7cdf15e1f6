"""Finds the lines of custom autograd Functions that set attributes of their `ctx`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from torchvet.source.syntax import bindings, ident, parse

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
    found: list[tuple[bool, ContextStore]] = []
    tree = parse(text)
    for owner in ast.walk(tree) if tree is not None else ():
        # By the end of its name: `Function`, `autograd.Function` and `torch.autograd.Function` are in use.
        if isinstance(owner, ast.ClassDef) and any(ast.unparse(base).endswith("Function") for base in owner.bases):
            for method in owner.body:
                # Without an argument there is no `ctx`, whatever it is called.
                if isinstance(method, ast.FunctionDef) and method.name in _STORING and method.args.args:
                    found += _in_method(owner.name, method)
    # A literal holds no tensor: it is only taken where there is nothing else to name.
    return [store for _, store in sorted(found, key=lambda pair: pair[0])]


def _in_method(owner: str, method: ast.FunctionDef) -> Iterator[tuple[bool, ContextStore]]:
    """The attributes of `ctx` that a method sets, each with whether its value is a literal."""
    for node in ast.walk(method):
        for target, _, _ in bindings(node):
            on_ctx = isinstance(target, ast.Attribute) and ident(target.value) == method.args.args[0].arg
            if on_ctx and isinstance(target, ast.Attribute) and target.attr not in _SETTERS:
                place = ContextStore(target.lineno, target.col_offset + 1, f"{owner}.{method.name}", target.attr)
                yield isinstance(getattr(node, "value", None), ast.Constant), place
