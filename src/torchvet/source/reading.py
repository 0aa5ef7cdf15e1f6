"""Reads one file, in one walk over its syntax tree."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass

from torchvet.source import flows, syntax
from torchvet.source.flows import Flow
from torchvet.source.module import CallSite, ClassInfo, Imported, Module, Turns
from torchvet.source.scopes import FunctionNode, Loop, Scope, parameters
from torchvet.source.text import SourceText
from torchvet.source.touches import Toucher

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def read(path: str, text: str) -> Module | None:
    """Parse a file; None where Python cannot."""
    source = SourceText(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source.text)
        top = Scope("module", "", "", 1, len(source.lines))
        module = Module(path, source, tree, top)
        _Reader(module).run()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
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

    def run(self) -> None:
        self.module.scopes.append(self.module.top)
        place = _Place(self.module.top, None, self.module.tree)
        self._push(self.module.tree.body, place)
        while self._stack:
            self._visit(*self._stack.pop())

    def _push(self, nodes: list[ast.stmt] | list[ast.expr] | list[ast.AST], place: _Place) -> None:
        self._stack.extend((node, place) for node in reversed(nodes))

    def _visit(self, node: ast.AST, place: _Place) -> None:
        self._note(node, place)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            self._function(node, place)
        elif isinstance(node, ast.ClassDef):
            self._class(node, place)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            self._loop(node, place)
        elif isinstance(node, _COMPREHENSIONS):
            self._comprehension(node, place)
        else:
            inner = _Place(place.scope, place.loop, node)
            self._push(list(ast.iter_child_nodes(node)), inner)

    def _function(self, node: FunctionNode, place: _Place) -> None:
        name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
        kind = "lambda" if isinstance(node, ast.Lambda) else "function"
        scope = place.scope.child(kind, name, node, node.lineno, node.end_lineno or node.lineno)
        scope.params = parameters(node)
        scope.bound.update(scope.params)
        scope.bound.update(a.arg for a in (node.args.vararg, node.args.kwarg) if a is not None)
        self.module.scopes.append(scope)
        if kind == "function":
            self.module.defs[name].append(scope)
        self._add_flows(list(flows.of_function(node, scope, place.scope)))
        self._annotations(node)
        outside = _Place(place.scope, place.loop, node)
        self._push(list(ast.iter_child_nodes(node.args)), outside)
        if isinstance(node, ast.Lambda):
            self._push([node.body], _Place(scope, None, node))
        else:
            self._push(node.body, _Place(scope, None, node))
            self._push(node.decorator_list, outside)

    def _annotations(self, node: FunctionNode) -> None:
        for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if arg.annotation is not None:
                self.module.made_by[arg.arg].update(_type_names(arg.annotation))

    def _class(self, node: ast.ClassDef, place: _Place) -> None:
        scope = place.scope.child("class", node.name, node, node.lineno, node.end_lineno or node.lineno)
        self.module.scopes.append(scope)
        self.module.classes[node.name] = ClassInfo(scope, [syntax.ident(b) for b in node.bases])
        self._push(node.body, _Place(scope, None, node))
        self._push([*node.decorator_list, *node.bases, *(k.value for k in node.keywords)], place)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, place: _Place) -> None:
        last = node.body[-1].end_lineno or node.lineno
        loop = Loop(node.lineno, last, place.loop)
        self.module.loops.append(loop)
        inner = _Place(place.scope, loop, node)
        self._push(node.orelse, _Place(place.scope, place.loop, node))
        self._push(node.body, inner)
        if isinstance(node, ast.While):
            self._push([node.test], inner)
            return
        self._turns(node.target, node.iter, place.scope, loop)
        self._push([node.iter], _Place(place.scope, place.loop, node))
        self._push([node.target], inner)

    def _comprehension(self, node: ast.AST, place: _Place) -> None:
        assert isinstance(node, _COMPREHENSIONS)
        loop = Loop(node.lineno, node.end_lineno or node.lineno, place.loop, comprehension=True)
        for generator in node.generators:
            self._turns(generator.target, generator.iter, place.scope, loop)
        self._push(list(ast.iter_child_nodes(node)), _Place(place.scope, loop, node))

    def _turns(self, target: ast.expr, iterated: ast.expr, scope: Scope, loop: Loop) -> None:
        self._add_flows(list(flows.of_loop(target, iterated, scope, loop)))
        for name in ast.walk(target):
            if isinstance(name, (ast.Name, ast.Attribute)) and isinstance(name.ctx, ast.Store):
                self.module.turns[syntax.ident(name)].append(Turns(name, iterated, scope, loop))

    def _note(self, node: ast.AST, place: _Place) -> None:
        self._bind(node, place.scope)
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.Delete, ast.Call)):
            for touch in Toucher(place.scope, place.loop).read(node, place.parent):
                self.module.touches[syntax.ident(touch.base)].append(touch)
        if isinstance(node, ast.Call):
            self._call(node, place)
        elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
            self.module.guards.append((node, place.scope))
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else [node.target]
            self._add_flows(list(flows.of_assignment(targets, node.value, place.scope, place.loop)))
            self._typed(node, targets)

    def _typed(self, node: ast.Assign | ast.AnnAssign | ast.NamedExpr, targets: list[ast.expr]) -> None:
        names = set(_constructors(node.value))
        if isinstance(node, ast.AnnAssign):
            names |= _type_names(node.annotation)
        for target in targets:
            elements = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            values = node.value.elts if isinstance(node.value, ast.Tuple) else []
            for index, element in enumerate(elements):
                own = set(_constructors(values[index])) if len(values) == len(elements) > 1 else names
                if syntax.ident(element):
                    self.module.made_by[syntax.ident(element)].update(own)

    def _call(self, node: ast.Call, place: _Place) -> None:
        name = syntax.ident(node.func)
        if name:
            self.module.calls[name].append(CallSite(node, place.scope, place.loop))
        for value in (*node.args, *(k.value for k in node.keywords)):
            if syntax.ident(value):
                self.module.passed.add(syntax.ident(value))
        self._add_flows(list(flows.of_call(node, place.scope, place.loop)))

    def _add_flows(self, found: list[Flow]) -> None:
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
            self._import(node, scope)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            scope.bound.add(node.name)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            scope.bound.add(bound)
            if isinstance(node, ast.ImportFrom):
                self.module.imports[bound] = Imported(node.module or "", alias.name)
            else:
                self.module.imports[bound] = Imported(alias.name, "")


def _constructors(node: ast.expr | None) -> list[str]:
    """Class-like names that a value is made by: `Stats()`, `x or Stats()`, `[Stats() for …]`."""
    if isinstance(node, ast.Call):
        name = syntax.ident(node.func)
        if name[:1].isupper():
            return [name]
        # `Net().to(device)`, `torch.compile(Net())`, `DDP(model)` keep what they are given.
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        return _constructors(inner) or (_constructors(node.args[0]) if node.args else [])
    if isinstance(node, ast.BoolOp):
        return [name for value in node.values for name in _constructors(value)]
    if isinstance(node, ast.IfExp):
        return _constructors(node.body) + _constructors(node.orelse)
    return []


def _type_names(node: ast.expr) -> set[str]:
    names = {syntax.ident(n) for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))}
    names |= {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return {n for n in names if n[:1].isupper()}
