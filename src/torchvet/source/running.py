"""Whether a line must have run, from lines that were seen running: statements of one block run in order.

Steps are sampled, so that what runs once before or between them is rarely seen. A helper ran where a call of it ran.
Within a function everything ran that no branch and no return stands before.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePath

from torchvet.source import syntax
from torchvet.source.program.module import CallSite
from torchvet.source.program.project import Project
from torchvet.source.program.scopes import Scope
from torchvet.source.statements import DEFINITIONS, Place, defined_in, first_line, leaves, path_to_line, path_to_node


class Running:
    """The program's text, and the lines of it that were seen running."""

    def __init__(self, sources: Mapping[str, str], seen: Mapping[str, Collection[int]]) -> None:
        self._project = Project(sources)
        self._seen = seen
        self._entered: dict[Scope, bool] = {}

    def ran(self, path: str, line: int) -> bool:
        """Whether the statement at a line must have run. False where the text does not show it."""
        module = self._project.module(path)
        if module is None:
            return False
        if reached(module.tree, self._seen.get(path, ()), line):
            return True
        # Not seen itself: it ran if its function was entered and nothing stands before it.
        way = path_to_line(module.tree, line)
        # From the innermost definition on; what is around that is a question of who calls it.
        inner = next((i for i in range(len(way) - 1, 0, -1) if isinstance(way[i].owner, DEFINITIONS)), 0)
        # Under a condition the statement may have been passed over.
        if not all(map(_is_sure, way[inner:])):
            return False
        owner = way[inner].owner if inner else None
        scope = module.scope_of(owner) if owner is not None else None
        # A class's body runs where the class statement does.
        if scope is None or scope.kind == "class":
            return scope is None or self.ran(path, scope.first)
        if scope not in self._entered:
            self._entered[scope] = False  # a function that only calls itself was never entered
            self._entered[scope] = self._is_entered(scope)
        return self._entered[scope]

    def _is_entered(self, function: Scope) -> bool:
        """Whether a call that must have run runs a function."""
        owner, name, method = function.method_class(), function.name, function.method_class() is not None
        # Python itself calls `__init__`, `__call__` and the like: where the class is called, they may be too.
        if owner is not None and name.startswith("__"):
            name, method = owner.name, False
        # A lambda's body may never be called.
        sites = (site for site in self._project.calls(name) if site.scope.kind != "lambda")
        fitting = (site for site in sites if _fits(site, function.file.path, method) and _is_unconditional(site))
        return any(self.ran(site.file.path, site.line) for site in fitting)


def _fits(site: CallSite, path: str, method: bool) -> bool:
    """Whether a call by the right name may be of a method, or of a function or class of the file at a path."""
    on = syntax.receiver(site.node)
    head, dot, rest = syntax.dotted(on).partition(".") if on is not None else ("", "", "")
    imported = site.file.imports.get(head)
    if method:
        return on is not None and imported is None
    # `helpers.train()`: the module that was imported must be that file.
    return on is None or (imported is not None and f"{imported}{dot}{rest}".rpartition(".")[2] == PurePath(path).stem)


def _is_unconditional(site: CallSite) -> bool:
    """Whether a call is evaluated whenever its statement is."""
    path = path_to_node(site.file.tree, site.node)
    return any(node is site.node for node in _sure_nodes(path[-1].statement))


def _sure_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """A node and those below it, without what stands behind a condition in an expression."""
    yield node
    if isinstance(node, (ast.IfExp, ast.BoolOp)):
        # `a and b()` may end after `a`.
        yield from _sure_nodes(node.test if isinstance(node, ast.IfExp) else node.values[0])
    else:
        for child in ast.iter_child_nodes(node):
            yield from _sure_nodes(child)


def _is_sure(place: Place) -> bool:
    """Whether what stands in a place runs whenever its block's owner does. A loop is taken to have a pass."""
    # The `else` of a loop or a `try` counts as sure, as its owner is taken to go well.
    branch = place.field in ("handlers", "cases") or isinstance(place.owner, ast.If)
    return not branch and not any(leaves(s, (ast.Return,)) for s in place.before)


def reached(tree: ast.Module, seen: Collection[int], line: int) -> bool:
    """Whether the statement at `line` ran, given lines that did. False where the text does not show it.

    It ran where a line of it or after it in its block did; or one before it, with nothing in between that leaves.
    """
    path = path_to_line(tree, line)
    if not path:
        return False
    # A line that the block shares with its head, `if x: statement`, is seen where only the head ran.
    place, head = path[-1], _end_of_head(path[-2].statement) if len(path) > 1 else 0
    ran = [any(n in seen and n != head for n in _lines(s)) for s in place.block]
    # What comes later in one block has passed everything before it.
    if any(ran[place.position :]):
        return True
    before = max((i for i in range(place.position) if ran[i]), default=None)
    return before is not None and not any(leaves(s) for s in place.block[before : place.position])


def _end_of_head(statement: ast.stmt) -> int:
    """The last line of what stands before a compound statement's block."""
    parts = [getattr(statement, name, None) for name in ("test", "iter", "subject", "returns")]
    return max([statement.lineno, *(one.end_lineno or 0 for one in parts if one is not None)])


def _lines(statement: ast.stmt) -> Iterator[int]:
    """A statement's lines, without those of functions that it only defines. A definition's own are all its lines."""
    # A line of a nested function is run by its call, wherever that is.
    inner = () if isinstance(statement, DEFINITIONS) else defined_in(statement)
    skipped = {n for d in inner for n in range(first_line(d), (d.end_lineno or 0) + 1)}
    return (n for n in range(first_line(statement), (statement.end_lineno or 0) + 1) if n not in skipped)
