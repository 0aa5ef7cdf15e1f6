"""What a statement reads and writes, by name: `x`, and `self.x` for attributes of a name."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

_MUTATING = {"append", "extend", "update", "insert", "add", "setdefault", "pop", "clear", "appendleft", "__setitem__"}
"""Methods that change what they are called on."""
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Effects:
    """Names read before they are written, names written, and names on which a method is called for its effect."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    called_on: set[str] = field(default_factory=set)


def effects_of(*nodes: ast.AST) -> Effects:
    """The effects of statements (or expressions) one after the other."""
    reader = _Reader()
    for node in nodes:
        reader.visit(node)
    return reader.found


def dotted(node: ast.AST) -> str | None:
    """`x` or `self.x`; None for anything longer or else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return None


class _Reader(ast.NodeVisitor):
    """Visits in the order of execution; what a branch or a loop writes may not have been written after it."""

    def __init__(self) -> None:
        self.found = Effects()
        self._written: set[str] = set()

    def _read(self, name: str) -> None:
        # Written before in the same stretch: it needs nothing from outside.
        if name not in self._written:
            self.found.reads.add(name)

    def _write(self, name: str) -> None:
        self.found.writes.add(name)
        self._written.add(name)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._read(node.id)
        else:
            self._write(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = dotted(node)
        # Binding `self.x` reads `self`.
        if not isinstance(node.ctx, ast.Load) and name is not None:
            self.visit(node.value)
            self._write(name)
            return
        if name is not None:
            self._read(name)
        self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        # In the order in which Python evaluates.
        self.visit(node.slice)
        name = dotted(node.value)
        if not isinstance(node.ctx, ast.Load) and name is not None:
            # Only an element is bound anew: the rest of what the name holds is needed as it was.
            self._read(name)
            self.found.writes.add(name)
        else:
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute):
            method, name = node.func.attr, dotted(node.func.value)
            # torch's convention: `add_` changes its owner, `__call__` says nothing.
            in_place = method.endswith("_") and not method.endswith("__")
            # The name keeps its object, whose content changes: it counts as read and as written.
            if name is not None and (in_place or method in _MUTATING):
                self._read(name)
                self.found.writes.add(name)

    def visit_Expr(self, node: ast.Expr) -> None:
        self.visit(node.value)
        call = node.value
        function = call.func if isinstance(call, ast.Call) else None
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            # As a statement, its result dropped: it is called for its effect (`optimizer.zero_grad()`).
            self.found.called_on.add(function.value.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        # After the value: `x = x + 1` reads `x` first.
        for target in node.targets:
            self.visit(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        name = dotted(node.target)
        if name is not None:
            self._read(name)
        self.visit(node.value)
        self.visit(node.target)

    def visit_AnnAssign(self, node: ast.AnnAssign | ast.NamedExpr) -> None:
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)

    visit_NamedExpr = visit_AnnAssign

    def _branches(self, *blocks: list[ast.stmt]) -> None:
        before, ends = self._written, []
        for block in blocks:
            self._written = set(before)
            for statement in block:
                self.visit(statement)
            ends.append(self._written)
        # Written for sure only where every branch writes it.
        self._written = set.intersection(*ends)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._branches(node.body, node.orelse)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        before = set(self._written)
        self.visit(node.target)
        for statement in node.body:
            self.visit(statement)
        # The body may run no time at all: what it binds may not be there afterwards.
        # What the loop's body has read is kept; what it has bound may not be bound.
        self._written = before
        self._branches(node.orelse)

    visit_AsyncFor = visit_For

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._branches(node.body, [])
        self._branches(node.orelse)

    def visit_Try(self, node: ast.Try) -> None:
        # A handler may have run after any part of the body.
        self._branches([*node.body, *node.orelse], *([*h.body] for h in node.handlers))
        for statement in node.finalbody:
            self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d), *node.decorator_list):
            self.visit(default)
        self._inner(node.args, node.body)
        self._write(node.name)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._inner(node.args, [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for base in (*node.bases, *node.decorator_list):
            self.visit(base)
        self._write(node.name)

    def _inner(self, arguments: ast.arguments, body: list[ast.stmt] | list[ast.expr]) -> None:
        """A function's own names stay its own; what it reads from outside is read."""
        inner = _Reader()
        # Parameters hide names of outside.
        inner._written = {a.arg for a in ast.walk(arguments) if isinstance(a, ast.arg)}
        for node in body:
            inner.visit(node)
        own = inner.found.writes
        for name in inner.found.reads - own:
            self._read(name)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        before = set(self._written)
        writes = set(self.found.writes)
        for generator in node.generators:
            self.visit(generator.iter)
            self.visit(generator.target)
            for condition in generator.ifs:
                self.visit(condition)
        parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        for part in parts:
            self.visit(part)
        # Its variables are its own: outside of it they are neither bound nor known.
        targets = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        self._written = before | (self._written - targets)
        self.found.writes = writes | (self.found.writes - targets)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension
