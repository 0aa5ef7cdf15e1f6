"""Calls that hand an object to a holder which gives it back: `model = pool.prepare(model)`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from torchvet.source import syntax
from torchvet.source.program.module import Module
from torchvet.source.stores.answers import Store, stored
from torchvet.source.walking import walk


def handed_to(module: Module, line: int, name: str) -> Store | None:
    """The first call on a holder of `name`, or on what that is an attribute of, that is given what the statement at a
    line binds; None where no such call follows in the same function."""
    nodes = _of_function(module, line)
    bound = {b.id for n in nodes if getattr(n, "lineno", 0) == line for b in _bound_by(n)}
    # A run says `trainer.pool._models` where the text says `self.pool`.
    holders = {part.partition("[")[0] for part in name.split(".")}
    calls = [n for n in nodes if isinstance(n, ast.Call) and n.lineno >= line and _is_on(n, holders)]
    for call in sorted(calls, key=lambda c: (c.lineno, c.col_offset)):
        value = next((g for g in _given(call) if g.id in bound), None)
        if value is not None:
            again = module.loop_at(call.lineno) is not None
            return stored(call, module.scope_at(call.lineno), "call", value, again)
    return None


def _of_function(module: Module, line: int) -> list[ast.AST]:
    """The nodes of the function around a line; of the whole file outside of any."""
    span = module.function_at(line)
    return [n for n in walk(module.tree) if span is None or span.first <= getattr(n, "lineno", 0) <= span.last]


def _given(call: ast.Call) -> list[ast.Name]:
    return [g for g in (*call.args, *(k.value for k in call.keywords)) if isinstance(g, ast.Name)]


def _is_on(call: ast.Call, holders: Collection[str]) -> bool:
    return isinstance(call.func, ast.Attribute) and syntax.ident(call.func.value) in holders


def _bound_by(node: ast.AST) -> Iterator[ast.Name]:
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
        yield from (target for target, _, _ in syntax.bindings(node) if isinstance(target, ast.Name))
