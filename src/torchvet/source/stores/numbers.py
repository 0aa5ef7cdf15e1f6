"""Numbers that the text of a program states: constants, what names and attributes are bound to, defaults, options."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchvet.source import syntax
from torchvet.source.program import scopes
from torchvet.source.program.project import Project
from torchvet.source.program.scopes import Scope

_DEEPEST = 5
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Div, ast.Pow)
# What is larger, `float("inf")` above all, is no count of anything.
_MOST = 1 << 62

Values = Iterator[tuple[ast.expr | None, Scope]]
"""What something is bound to, each expression with the scope that it stands in; None for what is no expression."""


def number(node: ast.expr, scope: Scope, depth: int = 0) -> int | None:
    """The number that an expression stands for, the largest where callers differ; None where the text does not say."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, ast.Constant):
        return _constant(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number(node.operand, scope, depth)
        return -inner if inner is not None else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
        left, right = number(node.left, scope, depth + 1), number(node.right, scope, depth + 1)
        return _computed(node.op, left, right) if left is not None and right is not None else None
    # `int(1e5)`.
    if isinstance(node, ast.Call) and syntax.ident(node.func) == "int" and len(node.args) == 1:
        return number(node.args[0], scope, depth + 1)
    return _largest(_of_name(node.id, scope) if isinstance(node, ast.Name) else _of_attribute(node, scope), depth)


def _largest(values: Values, depth: int) -> int | None:
    found = [number(value, where, depth + 1) if value is not None else None for value, where in values]
    # One unknown value among several may be the largest.
    known = [n for n in found if n is not None]
    return max(known) if known and len(known) == len(found) else None


def _constant(value: object) -> int | None:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _MOST
    return int(value) if plain else None  # type: ignore[call-overload]


def _computed(op: ast.operator, left: int, right: int) -> int | None:
    if isinstance(op, ast.Pow):
        # A program's text must not make this compute for hours.
        return int(left**right) if abs(left) <= 1024 and 0 <= right <= 64 else None
    if isinstance(op, (ast.FloorDiv, ast.Div)):
        return left // right if right else None
    return left + right if isinstance(op, ast.Add) else left - right if isinstance(op, ast.Sub) else left * right


def _of_name(name: str, scope: Scope) -> Values:
    """What a variable is bound to: by all its statements, or by all callers of its function and the default."""
    file, home = scope.file, scope.resolve(name)
    if file.loop_variables.get(name):
        # Unknown on purpose: a loop's variable has many values.
        yield None, scope
        return
    # `n += 1` makes it unknown.
    yield from ((m.value if m.rebinds else None, m.scope) for m in file.bindings_of(name, scope))
    if name in home.params:
        yield from _given(home, name)
    elif name in file.imports and home is file.top:
        imported = file.imports[name].rpartition(".")[2]
        for other in file.project.containing(imported):
            if other is not file and imported in other.top.bound:
                yield from _of_name(imported, other.top)


def _given(function: Scope, name: str) -> Values:
    if isinstance(function.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        defaults = scopes.defaults(function.node)
        # A default counts beside the callers: one of them may leave it out.
        yield from ((value, function.file.top) for key, value in defaults if key == name)
    yield from ((value, site.scope) for site, value in function.file.project.arguments(function, name))


def _of_attribute(node: ast.expr, scope: Scope) -> Values:
    """What attributes of that name are bound to: the class's own for `self`, else any, or an option's default."""
    if not isinstance(node, ast.Attribute):
        return
    project, home, on = scope.file.project, scope.owner_class(), syntax.ident(node.value)
    bound = list(_bound(project, node.attr))
    if home is not None and on in ("self", "cls"):
        lineage = project.lineage(home.name)
        own = [b for b in bound if (owner := b[1].owner_class()) is not None and owner.name in lineage]
        # The class may inherit it from a file that is not here: then any of the name counts.
        bound = own or bound
    yield from bound
    if not (bound and home is not None and on == "self"):
        yield from _options(project, node.attr)


def _options(project: Project, name: str) -> Values:
    """The defaults of `parser.add_argument("--name", default=...)`."""
    for site in project.calls("add_argument"):
        flags = [a.value for a in site.node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        if any(f.lstrip("-").replace("-", "_") == name for f in flags):
            yield syntax.keyword(site.node, "default"), site.scope


def _bound(project: Project, name: str) -> Values:
    for module in project.containing(name):
        for mutation in module.mutations.get(name, ()):
            if isinstance(mutation.base, ast.Attribute):
                yield mutation.value if mutation.rebinds and not mutation.keys else None, mutation.scope
            elif mutation.scope.kind == "class" and mutation.rebinds:
                yield mutation.value, mutation.scope
