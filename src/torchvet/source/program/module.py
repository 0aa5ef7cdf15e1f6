"""What one file says: its scopes, loops, mutations, flows, calls, classes and imports, by name."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchvet.source import syntax
from torchvet.source.program.flows import Flow
from torchvet.source.program.mutations import Mutation
from torchvet.source.program.scopes import Placed, Scope
from torchvet.source.statements import first_line
from torchvet.source.text import SourceText
from torchvet.source.walking import Loop

if TYPE_CHECKING:
    from torchvet.source.program.project import Project


@dataclass(frozen=True, eq=False)
class CallSite(Placed):
    """A call."""

    node: ast.Call


@dataclass(frozen=True, eq=False)
class LoopVariable(Placed):
    """A name or attribute that every turn of a loop binds to the next element of `node`."""

    node: ast.expr
    target: ast.Name | ast.Attribute


@dataclass(eq=False)
class Module:
    """What one file says. Built by `reading.read`."""

    path: str
    source: SourceText
    tree: ast.Module
    project: Project
    scopes: list[Scope] = field(default_factory=list)
    defs: dict[str, list[Scope]] = field(default_factory=lambda: defaultdict(list))
    loops: list[Loop] = field(default_factory=list)
    mutations: dict[str, list[Mutation]] = field(default_factory=lambda: defaultdict(list))
    flows: dict[str, list[Flow]] = field(default_factory=lambda: defaultdict(list))
    loop_variables: dict[str, list[LoopVariable]] = field(default_factory=lambda: defaultdict(list))
    calls: dict[str, list[CallSite]] = field(default_factory=lambda: defaultdict(list))
    passed: set[str] = field(default_factory=set)
    classes: dict[str, Scope] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    """The dotted names that imported names stand for."""
    guards: list[tuple[ast.If | ast.While | ast.IfExp, Scope]] = field(default_factory=list)
    made_by: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Names and attributes by the constructors and annotations that say what they are: `stats` → {`Stats`}."""

    def __post_init__(self) -> None:
        self.top = Scope(self, "module", "", "", 1, len(self.source.lines))
        self.scopes.append(self.top)

    def add_flow(self, flow: Flow) -> None:
        """Add a way that an object of some name goes."""
        self.flows[syntax.ident(flow.source)].append(flow)

    def functions(self, name: str) -> list[Scope]:
        """Functions and methods of a name."""
        return self.defs.get(name, [])

    def scope_of(self, node: ast.AST) -> Scope | None:
        """The scope that a function or class node opens."""
        return next((s for s in self.scopes if s.node is node), None)

    def function_at(self, line: int) -> Scope | None:
        """The innermost `def` around a line, decorators included."""
        found = None
        # Scopes are in the order of the text, so that of two around a line the later one is the inner one.
        for scope in self.scopes:
            if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                inner = found is None or scope.first >= found.first
                found = scope if inner and first_line(scope.node) <= line <= scope.last else found
        return found

    def scope_at(self, line: int) -> Scope:
        """The innermost `def` around a line; the module outside of all."""
        return self.function_at(line) or self.top

    def loop_at(self, line: int) -> Loop | None:
        """The innermost loop statement around a line, in the line's own function."""
        function = self.function_at(line)
        found = None
        for loop in self.loops:
            # Loops are noted as they are entered, but inner ones may come before: the later beginning
            # wins.
            if not loop.first <= line <= loop.last or (found is not None and loop.first < found.first):
                continue
            # A `def` within the loop: its body is not run by the loop. Its own lines are the loop's statement.
            if function is None or not (loop.first < function.first and loop.last >= function.last):
                found = loop
        return found

    def bindings_of(self, name: str, scope: Scope) -> list[Mutation]:
        """What statements do to the variable that a name means in a scope; attributes of that name are others."""
        home = scope.resolve(name)
        named = (m for m in self.mutations.get(name, ()) if isinstance(m.base, ast.Name))
        return [m for m in named if m.scope.resolve(name) is home]

    def mutations_of(self, base: ast.expr, scope: Scope) -> list[Mutation]:
        """What statements do to anything of a name: of a variable only those for which the name means the same."""
        name = syntax.ident(base)
        home = scope.resolve(name)
        found = self.mutations.get(name, ())
        # An attribute may be anybody's: whose it is, `name_resolution.fit` judges.
        return [m for m in found if not isinstance(base, ast.Name) or m.scope.resolve(name) is home]
