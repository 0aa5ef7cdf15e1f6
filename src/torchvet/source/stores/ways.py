"""The ways from a statement outward, through the calls of its function: loops and conditions that a run passes."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from torchvet.source import syntax
from torchvet.source.program.module import CallSite, Module
from torchvet.source.program.project import CALLED_BY_FRAMEWORK, CONSTRUCTORS, Project
from torchvet.source.program.scopes import Scope
from torchvet.source.statements import path_to_line

_DEEPEST = 6
"""Calls, one within another, that are followed outward."""
_MOST = 24
"""Ways out of a statement that are followed."""
_PLAIN_BASES = ("object", "Module", "Generic", "Protocol", "ABC")
"""Bases from outside the program that call no method of a class by themselves."""

Place = tuple[str, int]
"""A path and a line."""
LoopAt = tuple[str, int]
"""A path and the first line of a loop."""


@dataclass(frozen=True)
class Test:
    """A condition that must hold, or fail, for a statement to run."""

    node: ast.expr
    holds: bool
    scope: Scope


@dataclass
class Way:
    """One way from a statement outward through the calls of its function: the loops that it passes, each with the tests
    that were passed before it. `end` says where it stops."""

    loops: list[tuple[LoopAt, int]] = field(default_factory=list)
    tests: list[Test] = field(default_factory=list)
    end: str = "top"
    """`top`: a module's own level; `uncalled`; `framework`: something else than this program calls."""
    last: Scope | None = None
    rare: bool = False
    """Whether it stands where only an exception leads."""


def ways(project: Project, place: Place) -> list[Way]:
    """All ways outward from a line."""
    module = project.module(place[0])
    found: list[Way] = []
    if module is not None:
        _climb(module, place[1], Way(), found, ())
    return found


def _climb(module: Module, line: int, before: Way, found: list[Way], seen: tuple[Scope, ...]) -> None:
    project, scope = module.project, module.function_at(line)
    # Copied, since each caller goes on with a way of its own.
    way = Way([*before.loops], [*before.tests], last=scope, rare=before.rare)
    _outward(scope or module.top, line, way)
    if len(found) >= _MOST:
        return
    if scope is None:
        found.append(way)
        return
    sites = list(callers(project, scope))
    # Beside its own callers, which are followed as well.
    if scope.name in CALLED_BY_FRAMEWORK or project.is_passed(scope.name):
        way.end = "framework"
        found.append(way)
    elif not sites:
        # A method of a torch Dataset has no call in the program and runs all the same.
        way.end = "framework" if _may_be_called(project, scope) else "uncalled"
        found.append(way)
    for site in sites:
        if len(seen) < _DEEPEST and scope not in seen:
            _climb(site.file, site.line, way, found, (*seen, scope))


def _may_be_called(project: Project, scope: Scope) -> bool:
    """Whether a method without calls may be called by a base class, by a decorator, or by its name as a text."""
    owner = scope.method_class()
    if owner is None:
        return False
    known = filter(None, map(project.class_named, project.lineage(owner.name)))
    foreign = any(project.class_named(base) is None and base not in _PLAIN_BASES for c in known for base in c.bases)
    nodes = (node for module in project.containing(scope.name) for node in ast.walk(module.tree))
    # A text of that name may be given to `getattr`.
    return foreign or bool(scope.decorators) or any(getattr(node, "value", None) == scope.name for node in nodes)


def callers(project: Project, function: Scope) -> list[CallSite]:
    """The calls that may run a function: of a method those on objects of its class, where the text says whose."""
    owner = function.method_class()
    if owner is None:
        return list(project.calls(function.name))
    if function.name in CONSTRUCTORS:
        return list(project.calls(owner.name))
    by_fit: dict[int, list[CallSite]] = {0: [], 1: [], 2: []}
    for site in project.calls(function.name):
        by_fit[_is_on(project, site, owner)].append(site)
    # Calls on unknown objects count only where none is known to fit.
    return by_fit[2] or by_fit[1]


def _is_on(project: Project, site: CallSite, owner: Scope) -> int:
    """2: a call on an object of a class or of one related to it; 1: of an unknown class; 0: of another class."""
    receiver = syntax.receiver(site.node)
    if receiver is None:
        return 0
    # `super().step()` is a call on `self`.
    if isinstance(receiver, ast.Call) and syntax.ident(receiver.func) == "super":
        receiver = ast.Name("self")
    base, _ = syntax.peel(receiver)
    if base is None:
        return 1
    name, home = syntax.ident(base), site.scope.owner_class()
    if isinstance(base, ast.Name) and name in ("self", "cls") and home is not None:
        return 2 if project.related({home.name}, {owner.name}) else 0
    classes = project.classes_meant(name)
    if not classes:
        return 1
    return 2 if project.related(classes, {owner.name}) else 0


def _outward(scope: Scope, line: int, way: Way) -> None:
    """Add to a way what is passed from a line to the outside of its function, innermost first."""
    for place in reversed(path_to_line(scope.node or scope.file.tree, line)):
        # `if test: return` before a statement: the statement runs where the test fails.
        for before in (s for s in reversed(place.before) if isinstance(s, ast.If) and not s.orelse):
            if isinstance(before.body[-1], (ast.Return, ast.Continue)):
                way.tests.append(Test(before.test, False, scope))
        owner = place.owner
        way.rare |= place.field == "handlers"
        if isinstance(owner, ast.If) or (isinstance(owner, ast.While) and place.field == "body"):
            way.tests.append(Test(owner.test, place.field == "body", scope))
        if isinstance(owner, (ast.While, ast.For, ast.AsyncFor)) and place.field == "body":
            # With how many tests were passed inside of it: those beyond belong to outer loops.
            way.loops.append(((scope.file.path, owner.lineno), len(way.tests)))
