"""Whether a line must have run, from lines that were seen running: statements of one block run in order.

Steps are sampled, so that what runs once before or between them is rarely seen. A helper ran where a call of it ran.
Within a function everything ran that no branch and no return stands before.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePath
from typing import NamedTuple

from torchvet.source.statements import DEFINITIONS, Place, defined_in, first_line, last_line, leaves, path_to_line
from torchvet.source.syntax import parse

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Called(NamedTuple):
    """A call: its line, and what its function is taken from, if from anything: `module` where that is imported."""

    path: str
    line: int
    on: str | None
    module: str | None


class Running:
    """The program's text, and the lines of it that were seen running."""

    def __init__(self, sources: Mapping[str, str], seen: Mapping[str, Collection[int]]) -> None:
        self._sources = sources
        self._seen = seen
        self._trees: dict[str, ast.Module | None] = {}
        self._calls: dict[str, list[_Called]] | None = None
        self._entered: dict[tuple[str, int], bool] = {}

    def ran(self, path: str, line: int) -> bool:
        """Whether the statement at a line must have run. False where the text does not show it."""
        tree = self._tree(path)
        if tree is None:
            return False
        if reached(tree, self._seen.get(path, ()), line):
            return True
        way = path_to_line(tree, line)
        inner = next((i for i in range(len(way) - 1, 0, -1) if isinstance(way[i].owner, DEFINITIONS)), 0)
        if not all(map(_is_sure, way[inner:])):
            return False
        scopes = [place.owner for place in way if isinstance(place.owner, DEFINITIONS)]
        if not scopes or isinstance(scopes[-1], ast.ClassDef):
            return not scopes or self.ran(path, scopes[-1].lineno)
        outer = scopes[-2] if len(scopes) > 1 else None
        return self._is_entered(path, scopes[-1], outer.name if isinstance(outer, ast.ClassDef) else None)

    def _tree(self, path: str) -> ast.Module | None:
        if path not in self._trees:
            self._trees[path] = parse(self._sources.get(path, ""))
        return self._trees[path]

    def _is_entered(self, path: str, function: _Function, owner: str | None) -> bool:
        """Whether a call that must have run runs a function. Those that Python makes by itself are the instance's."""
        key = path, function.lineno
        if key not in self._entered:
            self._entered[key] = False  # a function that only calls itself was never entered
            # Python itself calls `__init__`, `__call__` and the like: where the class is called, they may be too.
            implied = owner is not None and function.name.startswith("__")
            name = owner if implied and owner is not None else function.name
            calls = self._by_name().get(name, ())
            fitting = (c for c in calls if _fits(c, path, method=owner is not None and not implied))
            self._entered[key] = any(self.ran(c.path, c.line) for c in fitting)
        return self._entered[key]

    def _by_name(self) -> dict[str, list[_Called]]:
        if self._calls is None:
            self._calls = defaultdict(list)
            for path in self._sources:
                for name, call in _calls(path, self._tree(path)):
                    self._calls[name].append(call)
        return self._calls


def _fits(call: _Called, path: str, method: bool) -> bool:
    """Whether a call by the right name may be of a method, or of a function or class of that file."""
    if method:
        return call.on is not None and call.module is None
    return call.on is None or (call.module or "").rpartition(".")[2] == PurePath(path).stem


def _calls(path: str, tree: ast.Module | None) -> Iterator[tuple[str, _Called]]:
    nodes = list(_sure_nodes(tree)) if tree is not None else []
    modules = {
        a.asname or a.name: a.name for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names
    }
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name):
            yield node.func.id, _Called(path, node.lineno, None, None)
        elif isinstance(node.func, ast.Attribute):
            on = ast.unparse(node.func.value)
            yield node.func.attr, _Called(path, node.lineno, on, modules.get(on))


def _sure_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """A node and those below it, without what stands in an expression behind a condition, or in a lambda."""
    yield node
    if isinstance(node, (ast.IfExp, ast.BoolOp)):
        yield from _sure_nodes(node.test if isinstance(node, ast.IfExp) else node.values[0])
    elif not isinstance(node, ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _sure_nodes(child)


def _is_sure(place: Place) -> bool:
    """Whether what stands in a place runs whenever its block's owner does. A loop is taken to have a pass."""
    branch = place.field in ("handlers", "cases") or isinstance(place.owner, ast.If)
    return not branch and not any(leaves(s, (ast.Return,)) for s in place.before)


def reached(tree: ast.Module, seen: Collection[int], line: int) -> bool:
    """Whether the statement at `line` ran, given lines that did. False where the text does not show it.

    It ran where a line of it or after it in its block did; or one before it, with nothing in between that leaves.
    """
    path = path_to_line(tree, line)
    if not path:
        return False
    place = path[-1]
    # A line that the block shares with its head, `if x: statement`, is seen where only the head ran.
    around = path[-2].statement if len(path) > 1 else None
    parts = [getattr(around, name, None) for name in ("test", "iter", "subject", "returns")]
    head = max([getattr(around, "lineno", 0), *(last_line(one) for one in parts if one is not None)])
    ran = [any(n in seen and n != head for n in _lines(s)) for s in place.block]
    if any(ran[place.position :]):
        return True
    before = max((i for i in range(place.position) if ran[i]), default=None)
    return before is not None and not any(leaves(s) for s in place.block[before : place.position])


def _lines(statement: ast.stmt) -> Iterator[int]:
    """A statement's lines, without those of functions that it only defines. A definition's own are all its lines."""
    inner = () if isinstance(statement, DEFINITIONS) else defined_in(statement)
    skipped = {n for d in inner for n in range(first_line(d), last_line(d) + 1)}
    return (n for n in range(first_line(statement), last_line(statement) + 1) if n not in skipped)
