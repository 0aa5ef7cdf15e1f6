"""Calls that hand an object to a holder which gives it back: `model = pool.prepare(model)`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from torchvet.source import syntax
from torchvet.source.program.module import Module
from torchvet.source.program.project import Project
from torchvet.source.stores.answers import Store, stored
from torchvet.source.stores.name_resolution import Asked
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


def handed_like(project: Project, asked: Asked) -> list[Store]:
    """The calls that hand an object what one of its attributes is named after, and whose result is used, those in loops
    first: `loader = accelerator.prepare(DataLoader(…))` for `accelerator._dataloaders`."""
    parts = [part.name for part in asked.name.parts]
    found: list[Store] = []
    for module in project.containing(parts[-2], asked.first) if len(parts) > 1 else ():
        for node in walk(module.tree):
            if isinstance(node, ast.Assign) and isinstance(call := node.value, ast.Call) and _is_on(call, parts[-2:-1]):
                value = next((g for g in call.args if _plain(parts[-1]) in _kinds(module, g)), None)
                if value is not None:
                    again = module.loop_at(call.lineno) is not None
                    found.append(stored(call, module.scope_at(call.lineno), "call", value, again))
    return sorted(found, key=lambda s: not s.in_loop)


def _kinds(module: Module, given: ast.expr) -> set[str]:
    """What an argument is called, and what makes it."""
    if isinstance(given, ast.Call):
        return {_plain(syntax.ident(given.func))}
    if not isinstance(given, ast.Name):
        return set()
    bound = (
        n for n in _of_function(module, given.lineno) if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call)
    )
    makers = (syntax.ident(n.value.func) for n in bound if given.id in {b.id for b in _bound_by(n)})  # type: ignore[attr-defined]
    return {_plain(name) for name in (given.id, *makers)}


def _plain(name: str) -> str:
    """A name without case, underscores and plural: `_dataloaders` is named as `DataLoader`."""
    return name.replace("_", "").lower().removesuffix("s")


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
