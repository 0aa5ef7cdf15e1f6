"""Where a name lives: the module, a class or a function, by Python's rules of scope."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(eq=False)
class Loop:
    """A loop's lines, first to last, without its `else`. A comprehension is one that no person would call a loop."""

    first: int
    last: int
    parent: Loop | None = None
    comprehension: bool = False

    def statement(self) -> Loop | None:
        """This loop, or the nearest around it that is a statement."""
        loop: Loop | None = self
        while loop is not None and loop.comprehension:
            loop = loop.parent
        return loop


@dataclass(eq=False)
class Scope:
    """A module (`""`), class, function or lambda. `qualname` is Python's own, with its `<locals>`."""

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

    def child(self, kind: str, name: str, node: ast.AST, first: int, last: int) -> Scope:
        """A scope right within this one."""
        infix = ".<locals>" if self.kind in ("function", "lambda") else ""
        prefix = f"{self.qualname}{infix}." if self.qualname else ""
        return Scope(kind, name, prefix + name, first, last, self, node)

    def resolve(self, name: str) -> Scope:
        """The scope that a name used here belongs to; the module for what is bound nowhere."""
        scope = self
        if name in scope.globals:
            return scope.module()
        if name in scope.bound and name not in scope.outer:
            return scope
        while scope.parent is not None:
            scope = scope.parent
            if scope.kind != "class" and name in scope.bound and name not in scope.outer | scope.globals:
                return scope
        return scope

    def module(self) -> Scope:
        """The scope of the whole file."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def owner_class(self) -> Scope | None:
        """The class whose method (or function within a method) this is."""
        scope: Scope | None = self
        while scope is not None and scope.kind != "class":
            scope = scope.parent
        return scope

    def function(self) -> Scope | None:
        """The nearest `def` around, lambdas left out; None at a module's or a class's own level."""
        scope: Scope | None = self
        while scope is not None and scope.kind == "lambda":
            scope = scope.parent
        return scope if scope is not None and scope.kind == "function" else None


def parameters(node: FunctionNode) -> list[str]:
    """Names that a positional argument may bind, in order, then those that only a keyword binds."""
    args = node.args
    return [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]


def defaults(node: FunctionNode) -> list[tuple[str, ast.expr]]:
    """Parameters that have a default, with it."""
    args = node.args
    positional = [a.arg for a in (*args.posonlyargs, *args.args)]
    pairs = list(zip(positional[len(positional) - len(args.defaults) :], args.defaults, strict=False))
    keyword = [(a.arg, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None]
    return pairs + keyword
