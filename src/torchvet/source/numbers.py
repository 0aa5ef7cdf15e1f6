"""Numbers that the text of a program states: constants, what names and attributes are bound to, defaults, options."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchvet.source import scopes, syntax
from torchvet.source.module import Module
from torchvet.source.project import Project
from torchvet.source.scopes import Scope

_DEEPEST = 5
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Div, ast.Pow)
_MOST = 1 << 62


def number(project: Project, module: Module, node: ast.expr, scope: Scope, depth: int = 0) -> int | None:
    """The number that an expression stands for, the largest where callers differ; None where the text does not say."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, ast.Constant):
        plain = isinstance(node.value, (int, float)) and not isinstance(node.value, bool) and abs(node.value) < _MOST
        return int(node.value) if plain else None  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number(project, module, node.operand, scope, depth)
        return -inner if inner is not None else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
        left = number(project, module, node.left, scope, depth + 1)
        right = number(project, module, node.right, scope, depth + 1)
        return _computed(node.op, left, right) if left is not None and right is not None else None
    if isinstance(node, ast.Call) and syntax.ident(node.func) == "int" and len(node.args) == 1:
        return number(project, module, node.args[0], scope, depth + 1)
    values: list[tuple[Module, ast.expr | None, Scope]] = []
    if isinstance(node, ast.Name):
        values = list(_of_name(project, module, node.id, scope))
    elif isinstance(node, ast.Attribute):
        values = list(_of_attribute(project, node, scope))
    found = [number(project, m, v, s, depth + 1) if v is not None else None for m, v, s in values]
    known = [n for n in found if n is not None]
    return max(known) if known and len(known) == len(found) else None


def _computed(op: ast.operator, left: int, right: int) -> int | None:
    if isinstance(op, ast.Pow):
        return int(left**right) if abs(left) <= 1024 and 0 <= right <= 64 else None
    if isinstance(op, (ast.FloorDiv, ast.Div)):
        return left // right if right else None
    return left + right if isinstance(op, ast.Add) else left - right if isinstance(op, ast.Sub) else left * right


def _of_name(
    project: Project, module: Module, name: str, scope: Scope
) -> Iterator[tuple[Module, ast.expr | None, Scope]]:
    """What a variable is bound to: by all its statements, or by all callers of its function and the default."""
    home = scope.resolve(name)
    if module.turns.get(name):
        yield module, None, scope
        return
    for touch in module.touches.get(name, ()):
        if isinstance(touch.base, ast.Name) and touch.scope.resolve(name) is home:
            yield module, touch.value if touch.rebinds else None, touch.scope
    if name in home.params:
        yield from _given(project, module, home, name)
    elif name in module.imports and home is module.top:
        imported = module.imports[name].name
        for other in project.containing(imported) if imported else ():
            if other is not module and imported in other.top.bound:
                yield from _of_name(project, other, imported, other.top)


def _given(
    project: Project, module: Module, function: Scope, name: str
) -> Iterator[tuple[Module, ast.expr | None, Scope]]:
    node = function.node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        yield from ((module, value, module.top) for key, value in scopes.defaults(node) if key == name)
    for where, site, value in project.arguments(function, name):
        yield where, value, site.scope


def _of_attribute(
    project: Project, node: ast.Attribute, scope: Scope
) -> Iterator[tuple[Module, ast.expr | None, Scope]]:
    """What attributes of that name are bound to: the class's own where it is `self`'s, else any, be it as an option of
    the command line."""
    bound = list(_bound(project, node.attr))
    home = scope.owner_class()
    if home is not None and syntax.ident(node.value) in ("self", "cls"):
        lineage = project.lineage(home.name)
        own = [b for b in bound if (owner := b[2].owner_class()) is not None and owner.name in lineage]
        bound = own or bound
    yield from bound
    if bound and home is not None and syntax.ident(node.value) == "self":
        return
    for module in project.containing("add_argument"):
        for site in module.calls.get("add_argument", ()):
            given = {k.arg: k.value for k in site.node.keywords}
            flags = [a.value for a in site.node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            if any(f.lstrip("-").replace("-", "_") == node.attr for f in flags):
                yield module, given.get("default"), site.scope


def _bound(project: Project, name: str) -> Iterator[tuple[Module, ast.expr | None, Scope]]:
    for module in project.containing(name):
        for touch in module.touches.get(name, ()):
            if isinstance(touch.base, ast.Attribute):
                yield module, touch.value if touch.rebinds and not touch.keys else None, touch.scope
            elif touch.scope.kind == "class" and touch.rebinds:
                yield module, touch.value, touch.scope
