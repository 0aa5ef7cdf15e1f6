"""What one file says: its scopes, loops and their variables, touches, flows, calls, classes and imports, by name."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field

from torchvet.source.flows import Flow
from torchvet.source.scopes import Loop, Scope
from torchvet.source.text import SourceText
from torchvet.source.touches import Touch


@dataclass(eq=False)
class CallSite:
    """A call: who, from where, and whether a loop goes around it."""

    node: ast.Call
    scope: Scope
    loop: Loop | None


@dataclass(eq=False)
class ClassInfo:
    """A class: its scope and the last identifiers of its bases."""

    scope: Scope
    bases: list[str]


@dataclass(frozen=True, eq=False)
class Turns:
    """A name or attribute that is a loop's variable: every turn of the loop binds it to the next of `node`."""

    target: ast.Name | ast.Attribute
    node: ast.expr
    scope: Scope
    loop: Loop


@dataclass(frozen=True)
class Imported:
    """`from module import name as alias`, or `import module as alias` where `name` is empty."""

    module: str
    name: str


@dataclass(eq=False)
class Module:
    """What one file says. Built by `reading.read`."""

    path: str
    source: SourceText
    tree: ast.Module
    top: Scope
    scopes: list[Scope] = field(default_factory=list)
    defs: dict[str, list[Scope]] = field(default_factory=lambda: defaultdict(list))
    loops: list[Loop] = field(default_factory=list)
    touches: dict[str, list[Touch]] = field(default_factory=lambda: defaultdict(list))
    flows: dict[str, list[Flow]] = field(default_factory=lambda: defaultdict(list))
    turns: dict[str, list[Turns]] = field(default_factory=lambda: defaultdict(list))
    calls: dict[str, list[CallSite]] = field(default_factory=lambda: defaultdict(list))
    passed: set[str] = field(default_factory=set)
    classes: dict[str, ClassInfo] = field(default_factory=dict)
    imports: dict[str, Imported] = field(default_factory=dict)
    guards: list[tuple[ast.If | ast.While | ast.IfExp, Scope]] = field(default_factory=list)
    made_by: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Names and attributes by the constructors and annotations that say what they are: `stats` → {`Stats`}."""

    def functions(self, name: str) -> list[Scope]:
        """Functions and methods of a name."""
        return self.defs.get(name, [])

    def scope_of(self, node: ast.AST) -> Scope | None:
        """The scope that a function or class node opens."""
        return next((s for s in self.scopes if s.node is node), None)
