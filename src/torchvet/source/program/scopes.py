"""Where code stands: the scope and the loop around it, and which variable or attribute a name means there."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchvet.source import syntax
from torchvet.source.syntax import FunctionNode
from torchvet.source.walking import Context, Loop

if TYPE_CHECKING:
    from torchvet.source.program.module import Module


@dataclass(eq=False)
class Scope:
    """A module (`""`), class, function or lambda of a file. `qualname` is Python's own, with its `<locals>`."""

    file: Module
    kind: str
    name: str
    qualname: str
    first: int
    last: int
    parent: Scope | None = None
    node: ast.AST | None = None
    bound: set[str] = field(default_factory=set)
    outer: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    params: list[str] = field(default_factory=list)

    def child(self, node: FunctionNode | ast.ClassDef, name: str) -> Scope:
        """A scope right within this one."""
        kind = "class" if isinstance(node, ast.ClassDef) else "lambda" if isinstance(node, ast.Lambda) else "function"
        # As `__qualname__` has it: recordings name functions so.
        infix = ".<locals>" if self.kind in ("function", "lambda") else ""
        prefix = f"{self.qualname}{infix}." if self.qualname else ""
        return Scope(self.file, kind, name, prefix + name, node.lineno, node.end_lineno or node.lineno, self, node)

    def binds(self, name: str) -> bool:
        """Whether a name is this scope's own."""
        return name in self.bound and name not in self.outer and name not in self.globals

    def resolve(self, name: str) -> Scope:
        """The scope that a name used here belongs to; the module for what is bound nowhere."""
        # First: an assignment in the function makes it no local.
        if name in self.globals:
            return self.file.top
        if self.binds(name):
            return self
        scope = self
        while scope.parent is not None:
            scope = scope.parent
            # The names of a class body are not seen from the functions in it.
            if scope.kind != "class" and scope.binds(name):
                return scope
        # The module: a builtin, or a name that another file puts there.
        return scope

    def owner_class(self) -> Scope | None:
        """The class whose method (or function within a method) this is."""
        # From itself on: a class's own scope belongs to it.
        scope: Scope | None = self
        while scope is not None and scope.kind != "class":
            scope = scope.parent
        return scope

    def method_class(self) -> Scope | None:
        """The class whose method this is, functions within a method excluded."""
        return self.parent if self.parent is not None and self.parent.kind == "class" else None

    def function(self) -> Scope | None:
        """The nearest `def` around; None at a module's or a class's own level. Lambdas do not count."""
        scope: Scope | None = self
        while scope is not None and scope.kind == "lambda":
            scope = scope.parent
        return scope if scope is not None and scope.kind == "function" else None

    @property
    def bases(self) -> list[str]:
        """The last identifiers of a class's bases."""
        return [syntax.ident(base) for base in getattr(self.node, "bases", ())]

    @property
    def decorators(self) -> list[ast.expr]:
        """The decorators of a function or class."""
        return getattr(self.node, "decorator_list", [])


@dataclass(frozen=True, eq=False)
class Placed:
    """Something that the text does in one place: its node, its scope, and the loops and branches around it there."""

    node: ast.expr | ast.stmt
    scope: Scope
    context: Context

    @property
    def loop(self) -> Loop | None:
        """The innermost loop around it, comprehensions included."""
        return self.context.loop

    @property
    def file(self) -> Module:
        """The file that it stands in."""
        return self.scope.file

    @property
    def line(self) -> int:
        """The first line of its node."""
        return self.node.lineno

    @property
    def around(self) -> Loop | None:
        """The innermost loop statement around it in its own function."""
        return self.loop.statement() if self.loop is not None else None

    @property
    def again(self) -> bool:
        """Whether it runs again and again: in a loop, or in a function that does."""
        return self.loop is not None or self.file.project.is_hot(self.scope.function())


@dataclass(frozen=True)
class Variable:
    """A name in one scope of one file."""

    scope: Scope
    name: str


@dataclass(frozen=True)
class Member:
    """An attribute of objects of some `classes` (empty: not known), which the program calls `owner`."""

    name: str
    classes: frozenset[str] = frozenset()
    owner: str = ""


Subject = Variable | Member


def defaults(node: FunctionNode) -> list[tuple[str, ast.expr]]:
    """Parameters that have a default, with it."""
    args = node.args
    positional = [a.arg for a in (*args.posonlyargs, *args.args)]
    # Python keeps defaults of the last positional ones only.
    pairs = list(zip(positional[len(positional) - len(args.defaults) :], args.defaults, strict=False))
    keyword = [(a.arg, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None]
    return pairs + keyword
