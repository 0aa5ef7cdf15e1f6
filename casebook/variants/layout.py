"""The parts of a module: imports, definitions, what runs at once, and what runs only when it is the program."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from casebook.variants.scopes import Scopes, scopes
from casebook.variants.text import Line, Module, first_line

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Layout:
    """A module and its parts. The module's docstring is in none of them."""

    module: Module

    @cached_property
    def scopes(self) -> Scopes:
        """Its scopes."""
        return scopes(self.module.tree)

    @cached_property
    def imports(self) -> list[ast.Import | ast.ImportFrom]:
        """What it imports, at its top."""
        return [s for s in self.module.tree.body if isinstance(s, (ast.Import, ast.ImportFrom))]

    @cached_property
    def guard(self) -> ast.If | None:
        """``if __name__ == "__main__":``, if it is the last statement."""
        last = self.module.tree.body[-1]
        return last if isinstance(last, ast.If) and "__name__" in ast.unparse(last.test) and not last.orelse else None

    @cached_property
    def body(self) -> list[ast.stmt]:
        """All statements but the docstring, the imports and the guard."""
        statements = self.module.tree.body
        if ast.get_docstring(self.module.tree) is not None:
            statements = statements[1:]
        return [s for s in statements if s is not self.guard and not isinstance(s, (ast.Import, ast.ImportFrom))]

    @cached_property
    def docstring(self) -> tuple[Line, ...]:
        """The lines of the docstring, if there is one."""
        if ast.get_docstring(self.module.tree) is None:
            return ()
        return self.module.span(self.module.tree.body[0])

    @cached_property
    def guarded(self) -> tuple[Line, ...]:
        """The statements below the guard, moved to the margin."""
        return tuple(line for s in self.guard.body for line in self.moved(s, -4)) if self.guard else ()

    def moved(self, statement: ast.stmt, by: int) -> tuple[Line, ...]:
        """The lines of a statement, further right or left; those that begin within a string stay."""
        span, inside = self.module.span(statement), self.module.inside_strings()
        start = (statement.end_lineno or 0) - len(span) + 1
        return tuple(
            line if number in inside else line.indented(by) if by > 0 else Line(line.text[-by:], line.origin)
            for number, line in enumerate(span, start=start)
        )

    def uses(self, node: ast.AST) -> set[str]:
        """The names bound at the top of the module that stand within a node."""
        within = {n for n in ast.walk(node) if isinstance(n, ast.Name)}
        return {n.id for n, scope in self.scopes.uses if n in within and scope.of(n.id) is self.scopes.module}

    def import_lines(self, used: Iterable[str]) -> tuple[Line, ...]:
        """The imports, of only what is used; of the future in any case."""
        wanted, lines = set(used), list[Line]()
        for statement in self.imports:
            future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
            kept = [a for a in statement.names if future or (a.asname or a.name.split(".")[0]) in wanted]
            if len(kept) == len(statement.names):
                lines += self.module.span(statement)
            elif kept:
                less = copy.copy(statement)
                less.names = kept
                lines.append(Line(ast.unparse(less)))
        return tuple(lines)


def bound_by(statement: ast.stmt) -> set[str]:
    """The names that a statement at the top of a module binds there."""
    if isinstance(statement, Definition):
        return {statement.name}
    return set(scopes(ast.Module([statement], [])).module.names)


def lines_of(statement: ast.stmt) -> range:
    """The lines that a statement has in its module."""
    return range(first_line(statement), (statement.end_lineno or statement.lineno) + 1)
