"""Reads one file, in one walk over its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchvet.source import syntax
from torchvet.source.model.imports import Imports
from torchvet.source.program import flows
from torchvet.source.program.flows import Flow
from torchvet.source.program.module import CallSite, LoopVariable, Module
from torchvet.source.program.mutations import MutationReader
from torchvet.source.program.scopes import FunctionNode, Loop, Scope, parameters
from torchvet.source.text import SourceText

if TYPE_CHECKING:
    from torchvet.source.program.project import Project

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_MUTATING = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.Delete, ast.Call)


def read(path: str, text: str, project: Project) -> Module | None:
    """Read a file of a project; None where Python cannot parse it."""
    source = SourceText(text)
    tree = syntax.parse(source.text)
    if tree is None:
        return None
    module = Module(path, source, tree, project)
    try:
        _Reader(module).run()
    except (ValueError, RecursionError, MemoryError):  # a number too long to be written, an expression too deep
        return None
    return module


@dataclass
class _Place:
    """Where a node stands."""

    scope: Scope
    loop: Loop | None
    parent: ast.AST | None


class _Reader:
    """Walks without recursion, in document order."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._stack: list[tuple[ast.AST, _Place]] = []
        self._imports: list[ast.Import | ast.ImportFrom] = []

    def run(self) -> None:
        self._push(self.module.tree.body, _Place(self.module.top, None, self.module.tree))
        while self._stack:
            self._visit(*self._stack.pop())
        self.module.imports = Imports(self._imports).names

    def _push(self, nodes: Iterable[ast.AST], place: _Place) -> None:
        self._stack.extend((node, place) for node in reversed(list(nodes)))

    def _visit(self, node: ast.AST, place: _Place) -> None:
        self._note(node, place)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            self._function(node, place)
        elif isinstance(node, ast.ClassDef):
            self._class(node, place)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            self._loop(node, place)
        elif isinstance(node, _COMPREHENSIONS):
            loop = Loop(node, place.loop, comprehension=True)
            for generator in node.generators:
                self._loop_variables(generator.target, generator.iter, place.scope, loop)
            self._push(ast.iter_child_nodes(node), _Place(place.scope, loop, node))
        else:
            self._push(ast.iter_child_nodes(node), _Place(place.scope, place.loop, node))

    def _function(self, node: FunctionNode, place: _Place) -> None:
        name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
        scope = place.scope.child("lambda" if isinstance(node, ast.Lambda) else "function", name, node)
        scope.params = parameters(node)
        scope.bound.update(scope.params)
        scope.bound.update(a.arg for a in (node.args.vararg, node.args.kwarg) if a is not None)
        self.module.scopes.append(scope)
        self._add_flows(flows.of_function(node, place.scope))
        for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if arg.annotation is not None:
                self.module.made_by[arg.arg].update(_type_names(arg.annotation))
        # Defaults and decorators are evaluated where the function is defined, its body is not.
        outside = _Place(place.scope, place.loop, node)
        self._push(ast.iter_child_nodes(node.args), outside)
        if isinstance(node, ast.Lambda):
            self._push([node.body], _Place(scope, None, node))
        else:
            self.module.defs[name].append(scope)
            self._push(node.body, _Place(scope, None, node))
            self._push(node.decorator_list, outside)

    def _class(self, node: ast.ClassDef, place: _Place) -> None:
        scope = place.scope.child("class", node.name, node)
        self.module.scopes.append(scope)
        self.module.classes[node.name] = scope
        self._push(node.body, _Place(scope, None, node))
        self._push([*node.decorator_list, *node.bases, *(k.value for k in node.keywords)], place)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, place: _Place) -> None:
        loop = Loop(node, place.loop)
        self.module.loops.append(loop)
        inner, outside = _Place(place.scope, loop, node), _Place(place.scope, place.loop, node)
        self._push(node.orelse, outside)
        self._push(node.body, inner)
        if isinstance(node, ast.While):
            self._push([node.test], inner)
        else:
            self._loop_variables(node.target, node.iter, place.scope, loop)
            self._push([node.iter], outside)
            self._push([node.target], inner)

    def _loop_variables(self, target: ast.expr, iterated: ast.expr, scope: Scope, loop: Loop) -> None:
        self._add_flows(flows.of_loop(target, iterated, scope, loop))
        for name in ast.walk(target):
            if isinstance(name, (ast.Name, ast.Attribute)) and isinstance(name.ctx, ast.Store):
                variable = LoopVariable(iterated, scope, loop, name)
                self.module.loop_variables[syntax.ident(name)].append(variable)

    def _note(self, node: ast.AST, place: _Place) -> None:
        self._bind(node, place.scope)
        if isinstance(node, _MUTATING):
            for mutation in MutationReader(place.scope, place.loop).read(node, place.parent):
                self.module.mutations[syntax.ident(mutation.base)].append(mutation)
        if isinstance(node, ast.Call):
            self._call(node, place)
        elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
            self.module.guards.append((node, place.scope))
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else [node.target]
            self._add_flows(flows.of_assignment(targets, node.value, place.scope, place.loop))
            annotated = _type_names(node.annotation) if isinstance(node, ast.AnnAssign) else set()
            for target, value, _ in (pair for one in targets for pair in syntax.pairs(one, node.value)):
                if syntax.ident(target):
                    self.module.made_by[syntax.ident(target)].update(annotated, _constructors(value))

    def _call(self, node: ast.Call, place: _Place) -> None:
        name = syntax.ident(node.func)
        if name:
            self.module.calls[name].append(CallSite(node, place.scope, place.loop))
        self.module.passed.update(filter(None, map(syntax.ident, syntax.given(node))))
        self._add_flows(flows.of_call(node, place.scope, place.loop))

    def _add_flows(self, found: Iterable[Flow]) -> None:
        for flow in found:
            self.module.flows[syntax.ident(flow.source)].append(flow)

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                scope.bound.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            scope.bound.add(node.name)
        elif isinstance(node, ast.Global):
            scope.globals.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            scope.outer.update(node.names)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            scope.bound.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
            self._imports.append(node)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            scope.bound.add(node.name)


def _constructors(node: ast.expr | None) -> list[str]:
    """Class-like names that a value is made by: `Stats()`, `x or Stats()`, `[Stats() for …]`."""
    if isinstance(node, ast.Call):
        name = syntax.ident(node.func)
        if name[:1].isupper():
            return [name]
        # `Net().to(device)`, `torch.compile(Net())`, `DDP(model)` keep what they are given.
        return _constructors(syntax.receiver(node)) or (_constructors(node.args[0]) if node.args else [])
    parts = syntax.parts(node) if isinstance(node, (ast.BoolOp, ast.IfExp)) else []
    return [name for part in parts for name in _constructors(part)]


def _type_names(node: ast.expr) -> set[str]:
    names = {syntax.ident(n) for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))}
    names |= {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return {n for n in names if n[:1].isupper()}
