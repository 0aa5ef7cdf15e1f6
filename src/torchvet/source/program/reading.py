"""Reads one file, in one walk over its syntax tree."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from torchvet.source import syntax
from torchvet.source.model.imports import Imports
from torchvet.source.model.units import targets_of
from torchvet.source.program import flows
from torchvet.source.program.module import CallSite, LoopVariable, Module
from torchvet.source.program.mutations import MutationReader
from torchvet.source.program.scopes import Scope
from torchvet.source.syntax import FunctionNode
from torchvet.source.text import SourceText
from torchvet.source.walking import Arm, Context, Walker

if TYPE_CHECKING:
    from torchvet.source.program.project import Project


def read(path: str, text: str, project: Project) -> Module | None:
    """Read a file of a project; None where Python cannot parse it."""
    source = SourceText(text)
    # `SourceText` has normal line ends, so positions in tree and text agree.
    tree = syntax.parse(source.text)
    if tree is None:
        return None
    module = Module(path, source, tree, project)
    try:
        _Reader(module).run()
    except (ValueError, RecursionError, MemoryError):  # a number too long to be written, an expression too deep
        return None
    return module


class _Reader(Walker):
    """Goes into functions, classes and lambdas: each is a scope, and a loop around one is none around its body."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self._module = module
        self._scope = module.top
        self._imports: list[ast.Import | ast.ImportFrom] = []

    def run(self) -> None:
        """Fill the module."""
        self.block(self._module.tree.body, Context())
        self._module.imports = Imports(self._imports).names

    def emit(self, node: ast.AST, parent: ast.AST) -> None:
        """Note what a node does to names."""
        scope, context, module = self._scope, self.context, self._module
        targets = targets_of(node)
        # Before names are resolved: a name that is bound anywhere in a function is local in all of it.
        scope.bound.update(one.id for one in targets if isinstance(one, ast.Name))
        for mutation in MutationReader(scope, context).read(node, parent):
            module.mutations[syntax.ident(mutation.base)].append(mutation)
        for flow in flows.of(node, scope, context):
            module.add_flow(flow)
        if isinstance(node, ast.Call):
            module.calls[syntax.ident(node.func)].append(CallSite(node, scope, context))
            # By name: what is passed may be called.
            module.passed.update(filter(None, map(syntax.ident, syntax.given(node))))
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            for one in targets:
                if isinstance(one, (ast.Name, ast.Attribute)):
                    module.loop_variables[syntax.ident(one)].append(LoopVariable(node.iter, scope, context, one))
        self._classes(node)

    def _classes(self, node: ast.AST) -> None:
        """Note the classes that assigned values are of, by their constructors and annotations."""
        annotated = _type_names(node.annotation) if isinstance(node, ast.AnnAssign) else set()
        for target, value, _ in syntax.bindings(node):
            if syntax.ident(target):
                self._module.made_by[syntax.ident(target)].update(annotated, _constructors(value))

    def in_loop(self, node: ast.AST, comprehension: bool = False) -> Context:
        """The context within a loop; statements among the loops are the module's."""
        context = super().in_loop(node, comprehension)
        if context.loop is not None and not comprehension:
            self._module.loops.append(context.loop)
        return context

    # Scopes ----------------------------------------------------------------------------------------------------------

    def _definition(self, statement: Any, context: Context) -> None:
        super()._definition(statement, context)
        self._scope.bound.add(statement.name)
        # Bases are evaluated in the scope around the class.
        for one in (*getattr(statement, "bases", ()), *(k.value for k in getattr(statement, "keywords", ()))):
            self._expr(one, statement)
        self._inside(statement, statement.name)

    def _lambda(self, node: Any, parent: ast.AST) -> None:
        for default in filter(None, (*node.args.defaults, *node.args.kw_defaults)):
            # Defaults too: once, where the function is made.
            self._expr(default, node)
        self._inside(node, "<lambda>")

    def _inside(self, node: FunctionNode | ast.ClassDef, name: str) -> None:
        """Walk a body as a scope of its own."""
        outer, around = self._scope, self.context
        self._scope = scope = outer.child(node, name)
        self._module.scopes.append(scope)
        if isinstance(node, ast.ClassDef):
            self._module.classes[name] = scope
        else:
            self._signature(node, scope, outer)
        if isinstance(node, ast.Lambda):
            self.context = Context()
            self._expr(node.body, node)
        else:
            self.block(node.body, Context())
        # A body's loops are none of what follows the function.
        self._scope, self.context = outer, around

    def _signature(self, node: FunctionNode, scope: Scope, outer: Scope) -> None:
        named = syntax.parameters(node)
        scope.params = [one.arg for one in named]
        # `*args` is bound but has no position that an argument could be found for.
        scope.bound.update(scope.params, (one.arg for one in (node.args.vararg, node.args.kwarg) if one is not None))
        for one in named:
            if one.annotation is not None:
                self._module.made_by[one.arg].update(_type_names(one.annotation))
        if not isinstance(node, ast.Lambda):
            self._module.defs[node.name].append(scope)
        for flow in flows.of_function(node, outer):
            self._module.add_flow(flow)

    # Conditions, and names that are bound otherwise than by an assignment --------------------------------------------

    def _if(self, statement: Any, context: Context) -> tuple[Arm, ...]:
        self._module.guards.append((statement, self._scope))
        return super()._if(statement, context)

    def _while(self, statement: Any, context: Context) -> None:
        self._module.guards.append((statement, self._scope))
        super()._while(statement, context)

    def _conditional(self, node: Any, parent: ast.AST) -> None:
        self._module.guards.append((node, self._scope))
        super()._conditional(node, parent)

    def _try(self, statement: Any, context: Context) -> None:
        self._scope.bound.update(handler.name for handler in statement.handlers if handler.name)
        super()._try(statement, context)

    def _match(self, statement: Any, context: Context) -> None:
        patterns = (node for case in statement.cases for node in ast.walk(case.pattern))
        self._scope.bound.update(name for name in (getattr(node, "name", None) for node in patterns) if name)
        super()._match(statement, context)

    def _declaration(self, statement: Any, context: Context) -> None:
        if isinstance(statement, ast.Global):
            self._scope.globals.update(statement.names)
        elif isinstance(statement, ast.Nonlocal):
            self._scope.outer.update(statement.names)
        else:
            self._scope.bound.update(alias.asname or alias.name.partition(".")[0] for alias in statement.names)
            self._imports.append(statement)


def _constructors(node: ast.expr | None) -> list[str]:
    """Class-like names that a value is made by: `Stats()`, `x or Stats()`, `[Stats() for …]`."""
    if isinstance(node, ast.Call):
        name = syntax.ident(node.func)
        if name[:1].isupper():
            return [name]
        # `Net().to(device)`, `torch.compile(Net())`, `DDP(model)` keep what they are given.
        # The receiver first, as in `Net(config()).to(device)`.
        return _constructors(syntax.receiver(node)) or (_constructors(node.args[0]) if node.args else [])
    parts = syntax.parts(node) if isinstance(node, (ast.BoolOp, ast.IfExp)) else []
    return [name for part in parts for name in _constructors(part)]


def _type_names(node: ast.expr) -> set[str]:
    names = {syntax.ident(n) for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))}
    names |= {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    # `list` and `int` are no classes of the program.
    return {n for n in names if n[:1].isupper()}
