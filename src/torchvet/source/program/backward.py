"""Follows a value back through the text: what an expression is computed from, through names, attributes and calls."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from torchvet.source import syntax
from torchvet.source.program.mutations import Mutation
from torchvet.source.program.project import Project
from torchvet.source.program.scopes import Scope
from torchvet.source.text import name_set
from torchvet.source.walking import walk

# Chosen, not measured.
_MOST_NODES = 4000
_MOST_SITES = 4
_MOST_FUNCTIONS = 2
_NO_DATA = name_set(
    "int len range round bool str arange linspace isnan isfinite isinf argsort argmax argmin print size"
)
"""Calls whose result has nothing of the values that they are given."""
_STACKS = name_set("stack column_stack dstack vstack hstack cat concatenate concat c_ array tensor asarray as_tensor")


@dataclass
class Wanted:
    """Which part of a value is meant: one column of `width`, and the keys by which a dict has it."""

    columns: Collection[int] = ()
    width: int = 0
    keys: Collection[str] = ()


@dataclass
class Backward:
    """One search. `cut` says that it went too far to be told to its end."""

    project: Project
    cleans: Collection[str] = ()
    """Calls that leave nothing of what is wrong in what they are given."""
    wanted: Wanted = field(default_factory=Wanted)
    cut: bool = False
    _seen: set[tuple[int, int]] = field(default_factory=set)
    _nodes: int = 0

    def of(self, node: ast.expr, scope: Scope) -> Iterator[tuple[ast.expr, Scope]]:
        """Every expression that a value is computed from, with the scope that it stands in; the nearest come first."""
        waiting = [(node, scope)]
        for one, home in waiting:  # it grows meanwhile
            if (id(one), id(home)) in self._seen:
                continue
            self._seen.add((id(one), id(home)))
            self._nodes += 1
            if self._nodes > _MOST_NODES:
                self.cut = True
                return
            yield one, home
            waiting += self.before(one, home)

    def of_class(self, name: str, attribute: str) -> list[Mutation]:
        """What is put into an attribute of a class of the program's, from its own methods."""
        classes = self.project.lineage(name)
        return [
            m
            for module in self.project.containing(attribute)
            for m in module.mutations.get(attribute, ())
            if isinstance(m.base, ast.Attribute) and m.value is not None
            # `self.x` in a method of the class; what others put there is not told apart by name.
            if syntax.ident(m.base.value) == "self" and (home := m.scope.owner_class()) is not None
            if home.name in classes
        ]

    def before(self, node: ast.expr, scope: Scope) -> list[tuple[ast.expr, Scope]]:
        """What an expression is computed from, one step back."""
        if isinstance(node, ast.Name):
            return list(self._of_name(node, scope))
        if isinstance(node, ast.Attribute):
            return list(self._of_attribute(node, scope))
        if isinstance(node, ast.Call):
            return list(self._of_call(node, scope))
        if isinstance(node, ast.Dict):
            picked = [v for k, v in zip(node.keys, node.values, strict=True) if _literal(k) in self.wanted.keys]
            return [(v, scope) for v in picked or node.values]
        return [(part, scope) for part in _parts(node)]

    def _of_name(self, node: ast.Name, scope: Scope) -> Iterator[tuple[ast.expr, Scope]]:
        home = scope.resolve(node.id)
        for found in scope.file.bindings_of(node.id, scope):
            # Later lines of the same function have not run yet, but for the next turn of a loop.
            later = found.scope is scope and found.line > node.lineno and found.loop is None
            if found.value is not None and not later:
                yield from self._bound(found, node.id)
        for loop in scope.file.loop_variables.get(node.id, ()):
            if isinstance(loop.target, ast.Name) and loop.scope.resolve(node.id) is home:
                yield loop.node, loop.scope
        if home.kind == "function" and node.id in home.params:
            yield from self._given(home, node.id)
        elif home.parent is None and node.id in scope.file.imports and not home.binds(node.id):
            yield from self._imported(node.id, scope)

    def _given(self, function: Scope, parameter: str) -> Iterator[tuple[ast.expr, Scope]]:
        """What callers pass for a parameter; of many callers the first few."""
        sites = list(self.project.arguments(function, parameter)) if parameter not in ("self", "cls") else []
        self.cut |= len(sites) > _MOST_SITES
        yield from ((given, site.scope) for site, given in sites[:_MOST_SITES])

    def _imported(self, name: str, scope: Scope) -> Iterator[tuple[ast.expr, Scope]]:
        last = scope.file.imports[name].rpartition(".")[2]
        for module in self.project.containing(last):
            if module is not scope.file:
                found = module.bindings_of(last, module.top)
                yield from ((m.value, m.scope) for m in found if m.value is not None and m.scope is module.top)

    def _bound(self, found: Mutation, name: str) -> Iterator[tuple[ast.expr, Scope]]:
        """What a statement binds a name to: of a tuple that a function returns only the name's own part."""
        value, scope = found.value, found.scope
        assert value is not None
        if found.store == "augmented":
            value = _in_place(found.node, value)
        index = _position(found.node, name)
        if index is None or not isinstance(value, ast.Call):
            yield value, scope
            return
        returned = list(self._returned(value, scope))
        for one, inner in returned:
            yield (one.elts[index] if isinstance(one, ast.Tuple) and index < len(one.elts) else one), inner
        if not returned:
            yield value, scope

    def _of_attribute(self, node: ast.Attribute, scope: Scope) -> Iterator[tuple[ast.expr, Scope]]:
        owner = syntax.ident(node.value)
        home = scope.owner_class()
        own = owner in ("self", "cls") and home is not None
        names = {home.name} if own and home is not None else self.project.classes_of(owner)
        for name in sorted(names):
            for found in self.of_class(name, node.attr):
                yield from self._bound(found, node.attr)
        if not names:
            yield node.value, scope

    def _of_call(self, call: ast.Call, scope: Scope) -> Iterator[tuple[ast.expr, Scope]]:
        name = syntax.ident(call.func)
        if name in _NO_DATA or name in self.cleans:
            return
        inside = list(self._returned(call, scope))
        if inside:
            yield from inside  # what it does with its arguments is met there
            return
        picked = self._column_of(call) if name in _STACKS else None
        if picked is not None:
            yield from ((one, scope) for one in picked)
            return
        on = syntax.receiver(call)
        if on is not None:
            yield on, scope
        given = [*(a.value if isinstance(a, ast.Starred) else a for a in call.args), *(k.value for k in call.keywords)]
        yield from ((one, scope) for one in given if not isinstance(one, ast.Constant))

    def _returned(self, call: ast.Call, scope: Scope) -> Iterator[tuple[ast.expr, Scope]]:
        """What functions of the program return that a call may mean."""
        name = syntax.ident(call.func)
        on_object = isinstance(call.func, ast.Attribute)
        found = [f for m in self.project.containing(name, [scope.file.path]) for f in m.functions(name)] if name else []
        here = [f for f in found if f.file is scope.file]
        found = here or found
        plain = [f for f in found if (f.method_class() is not None) == on_object] or (found if on_object else [])
        if len(plain) > _MOST_FUNCTIONS:
            self.cut = True
            return
        for function in plain:
            yield from returned(function)

    def _column_of(self, call: ast.Call) -> list[ast.expr] | None:
        """Of columns that are put side by side the ones that are wanted."""
        parts = call.args[0] if call.args else None
        wanted = self.wanted
        if not isinstance(parts, (ast.List, ast.Tuple)) or not wanted.columns or len(parts.elts) != wanted.width:
            return None
        return [parts.elts[i] for i in wanted.columns if i < len(parts.elts)]


def _parts(node: ast.expr) -> list[ast.expr]:
    """The expressions within one whose values go into its own."""
    if isinstance(node, ast.Subscript):
        return [node.value]  # which elements are taken does not change them
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return [node.elt, *(g.iter for g in node.generators)]
    if isinstance(node, ast.DictComp):
        return [node.value, *(g.iter for g in node.generators)]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, (ast.Lambda, ast.Compare, ast.JoinedStr)):
        return []
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]


def returned(function: Scope) -> Iterator[tuple[ast.expr, Scope]]:
    """What a function returns or yields itself, not one within it."""
    within: set[int] = set()
    for node in walk(function.node) if function.node is not None else ():
        if node is not function.node and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            within |= {id(inner) for inner in walk(node)}
        given = isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)) and id(node) not in within
        if given and isinstance(value := getattr(node, "value", None), ast.expr):
            yield value, function


def _in_place(node: ast.expr | ast.stmt, value: ast.expr) -> ast.expr:
    """What `x /= y` or `x.div_(y)` computes; what `x` was before has a statement of its own."""
    if isinstance(node, ast.AugAssign):
        return ast.copy_location(ast.BinOp(ast.copy_location(ast.Constant(1), node), node.op, value), node)
    return node if isinstance(node, ast.Call) else value


def _position(node: ast.AST, name: str) -> int | None:
    """At which place of a tuple a statement binds a name."""
    for target in node.targets if isinstance(node, ast.Assign) else ():
        if isinstance(target, (ast.Tuple, ast.List)):
            return next((i for i, one in enumerate(target.elts) if syntax.ident(one) == name), None)
    return None


def _literal(key: ast.expr | None) -> str | None:
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None
