"""Statements that copy one model's weights into another, and what has to hold for each to run. The text is read, never
run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import dataclass

from torchvet.source import syntax
from torchvet.source.program.module import CallSite
from torchvet.source.program.project import Project
from torchvet.source.stores import numbers
from torchvet.source.stores.ways import Test, ways

_PARTS = ("parameters", "buffers", "state_dict", "named_parameters")


@dataclass(frozen=True)
class Copying:
    """A copy that has not run: the line of the condition that keeps it from running, or of the function that nobody
    calls. `turns`: the condition holds with every so many turns, where the text states a number."""

    path: str
    line: int
    uncalled: bool = False
    turns: int | None = None


def called_at(project: Project, path: str, line: int) -> set[str]:
    """The names of what is called in the statement at a line."""
    module = project.module(path)
    lines = (node for node in ast.walk(module.tree) if isinstance(node, ast.stmt)) if module is not None else ()
    simple = [n for n in lines if n.lineno <= line <= (n.end_lineno or n.lineno) and not hasattr(n, "body")]
    return {syntax.ident(n.func) for one in simple for n in ast.walk(one) if isinstance(n, ast.Call)} - {""}


def copies_into(project: Project, names: Set[str], ran: Set[tuple[str, int]]) -> list[Copying] | None:
    """The copies into a model of one of these names, which did not change although the program ran for long. `ran` are
    lines that are known to have run. None where the text shows one that runs whatever happens, so that it is not
    understood."""
    found = []
    for site in _sites(project, names):
        for way in ways(project, (site.file.path, site.line)):
            if way.rare or way.end == "framework":
                continue
            if way.loops:
                inner = way.tests[: way.loops[0][1]] or way.tests
                if not inner:
                    return None
                found.append(_under(inner))
            elif way.end == "uncalled" and way.last is not None:
                found.append(Copying(way.last.file.path, way.last.first, uncalled=True))
    return [one for one in dict.fromkeys(found) if (one.path, one.line) not in ran]


def _under(tests: list[Test]) -> Copying:
    """The condition with a stated number of turns, else the innermost."""
    for test in tests:
        for remainder in syntax.remainders(test.node):
            turns = numbers.number(remainder.right, test.scope)
            if turns is not None and turns > 0:
                return Copying(test.scope.file.path, test.node.lineno, turns=turns)
    return Copying(tests[0].scope.file.path, tests[0].node.lineno)


def _sites(project: Project, names: Set[str]) -> Iterator[CallSite]:
    """Calls that load weights into a model of one of these names, or go through its parameters beside another's."""
    for site in project.calls("load_state_dict"):
        if _names(project, site, syntax.receiver(site.node)) & names:
            yield site
    for site in project.calls("zip"):
        parts = [a for a in site.node.args if isinstance(a, ast.Call) and syntax.ident(a.func) in _PARTS]
        if len(parts) > 1 and any(_names(project, site, syntax.receiver(part)) & names for part in parts):
            yield site


def _names(project: Project, site: CallSite, node: ast.expr | None) -> set[str]:
    """What a model is called: the last identifier, and those of what callers give for a parameter."""
    name = syntax.ident(node) if node is not None else ""
    given = project.arguments(site.scope, name) if isinstance(node, ast.Name) else ()
    return {name, *(syntax.ident(value) for _, value in given)} - {""}
