"""Which scope each name of a module is bound in, as Python's compiler sees it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Literal

Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(eq=False)
class Scope:
    """A module, a function (a lambda and a comprehension are functions too) or a class."""

    kind: Literal["module", "function", "class"]
    node: ast.AST
    above: Scope | None = None
    names: set[str] = field(default_factory=set)
    """What is bound in it."""
    imported: set[str] = field(default_factory=set)
    """What of that is bound by an import."""
    elsewhere: set[str] = field(default_factory=set)
    """What it declares global or nonlocal."""

    def of(self, name: str) -> Scope | None:
        """The scope that a name means here; None for one of Python's own."""
        scope: Scope | None = self
        while scope is not None:
            reachable = scope is self or scope.kind != "class"
            if reachable and name in scope.names and name not in scope.elsewhere:
                return scope
            scope = scope.above
        return None


@dataclass(frozen=True)
class Scopes:
    """What `scopes` finds."""

    module: Scope
    everything: list[Scope]
    uses: list[tuple[ast.Name, Scope]]
    """Every name and the scope that it stands in."""

    def bound_in(self, kind: str) -> list[ast.Name]:
        """The names that are bound in scopes of this kind."""
        return [name for name, scope in self.uses if (found := scope.of(name.id)) and found.kind == kind]


def scopes(tree: ast.Module) -> Scopes:
    """Read a module."""
    reader = _Reader(tree)
    for statement in tree.body:
        reader.visit(statement)
    return Scopes(reader.module, reader.everything, reader.uses)


class _Reader(ast.NodeVisitor):
    def __init__(self, tree: ast.Module) -> None:
        self.module = self.here = Scope("module", tree)
        self.everything = [self.module]
        self.uses: list[tuple[ast.Name, Scope]] = []

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.here.names.add(node.id)
        self.uses.append((node, self.here))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: Function) -> None:
        self.here.names.add(node.name)
        self._each([*node.decorator_list, *([node.returns] if node.returns else [])])
        self._arguments(node.args)
        self._within("function", node, node.body, node.args)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._arguments(node.args)
        self._within("function", node, [node.body], node.args)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.here.names.add(node.name)
        self._each([*node.decorator_list, *node.bases, *node.keywords])
        self._within("class", node, node.body)

    def _comprehension(self, node: Comprehension) -> None:
        first, *others = node.generators
        self.visit(first.iter)
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._within("function", node, [first.target, *first.ifs, *others, *results])

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        names = {alias.asname or alias.name.split(".")[0] for alias in node.names}
        self.here.names |= names
        self.here.imported |= names

    visit_ImportFrom = visit_Import

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.here.names.add(node.name)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.here.elsewhere |= set(node.names)
        self.module.names |= set(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.here.elsewhere |= set(node.names)

    def _arguments(self, arguments: ast.arguments) -> None:
        annotations = [a.annotation for a in all_arguments(arguments)]
        self._each([*arguments.defaults, *(n for n in [*arguments.kw_defaults, *annotations] if n is not None)])

    def _within(
        self,
        kind: Literal["function", "class"],
        node: ast.AST,
        body: list[ast.AST] | list[ast.stmt] | list[ast.expr],
        arguments: ast.arguments | None = None,
    ) -> None:
        names = {a.arg for a in all_arguments(arguments)} if arguments else set()
        self.here = Scope(kind, node, self.here, names)
        self.everything.append(self.here)
        self._each(body)
        assert self.here.above is not None
        self.here = self.here.above

    def _each(self, nodes: list[ast.AST] | list[ast.stmt] | list[ast.expr]) -> None:
        for node in nodes:
            self.visit(node)


def all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    """Every parameter."""
    starred = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *starred]
