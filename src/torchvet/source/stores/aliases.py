"""Follows an object through its other names, and gathers what the program does to it."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from torchvet.source import syntax
from torchvet.source.program.flows import Flow
from torchvet.source.program.module import Module
from torchvet.source.program.mutations import STORE_METHODS, Mutation
from torchvet.source.program.project import Project
from torchvet.source.program.scopes import Member, Placed, Scope, Subject, Variable
from torchvet.source.stores import name_resolution
from torchvet.source.stores.name_resolution import NO, SURE, UNLIKELY

DEEPEST = 3
"""Calls that an object is followed through."""
_MOST = 400
"""Other names that a search follows before it ends: names such as `x` are everywhere."""


@dataclass(frozen=True, eq=False)
class Use:
    """A mutation of the object: how surely (`fit`), after how many calls, whether a loop goes around one of these."""

    mutation: Mutation
    fit: int
    depth: int
    again: bool

    @property
    def line(self) -> int:
        """The first line of the mutation."""
        return self.mutation.line

    @property
    def in_loop(self) -> bool:
        """Whether a loop goes around it, or around a call that brings the object there."""
        return self.mutation.loop is not None or self.again


@dataclass(frozen=True)
class Alias:
    """Another name of the object. `other`: rebinding it changes nothing for the object; `back`: found against the flow,
    so that arithmetic on it may have come before."""

    subject: Subject
    depth: int = 0
    fit: int = SURE
    other: bool = False
    back: bool = False
    again: bool = False


class AliasSearch:
    """One search. `uses` are the mutations, `aliases` all the names, after `run`."""

    def __init__(self, project: Project, first: Iterable[str]) -> None:
        self._project = project
        self._first = list(first)
        self._waiting: deque[Alias] = deque()
        self.uses: list[Use] = []
        self.aliases: dict[Subject, Alias] = {}

    def run(self, roots: Iterable[Subject]) -> None:
        """Follow every name there is, nearest first."""
        for root in roots:
            self._add(Alias(root))
        while self._waiting:
            alias = self._waiting.popleft()
            subject = alias.subject
            # A local variable is read in its own file alone; a module's name or an attribute may be used in any.
            if isinstance(subject, Variable) and subject.scope.parent is not None:
                self._search(alias, subject.scope.file)
                continue
            # Only files that have the word are parsed at all.
            for module in self._project.containing(subject.name, self._first):
                self._search(alias, module)

    @property
    def likely(self) -> list[Use]:
        """The uses that are not of another class's attribute of the same name."""
        return [use for use in self.uses if use.fit > UNLIKELY]

    def means(self, base: syntax.Base | None, scope: Scope) -> bool:
        """Whether an expression may mean the object."""
        return base is not None and any(self._fit(a, base, scope) > UNLIKELY for a in self.aliases.values())

    def _add(self, alias: Alias) -> None:
        # The nearest names come first, so that the limit cuts off the least certain ones.
        # Each subject once, by the shortest way: that is the surest.
        if alias.depth <= DEEPEST and alias.subject not in self.aliases and len(self.aliases) < _MOST:
            self.aliases[alias.subject] = alias
            self._waiting.append(alias)

    def _fit(self, alias: Alias, base: syntax.Base, scope: Scope) -> int:
        # A chain is as sure as its weakest link.
        return min(name_resolution.fit(self._project, alias.subject, base, scope), alias.fit)

    def _search(self, alias: Alias, module: Module) -> None:
        name = alias.subject.name
        for mutation in module.mutations.get(name, ()):
            fit = self._fit(alias, mutation.base, mutation.scope)
            if fit != NO:
                self._use(alias, mutation, fit)
        for flow in module.flows.get(name, ()):
            fit = self._fit(alias, flow.source, flow.scope)
            if fit > UNLIKELY:
                self._forwards(alias, flow, fit)
        self._imports(alias, module)
        self._from_callers(alias)

    def _use(self, alias: Alias, mutation: Mutation, fit: int) -> None:
        """Add a mutation, and what it says of other names: `self.history = history` makes `history` one of them."""
        # Binding another name anew does nothing to the object. Found against the flow, `total += x` may have made the
        # object that was passed on, rather than have changed it.
        if not (alias.other and mutation.rebinds) and not (alias.back and mutation.store == "augmented"):
            self.uses.append(Use(mutation, fit, alias.depth, alias.again))
        # Under a key it is a part of the object that the value names, and not the object itself.
        bound = mutation.store in ("assign", "setattr") and not mutation.keys
        if bound and fit > UNLIKELY and isinstance(mutation.value, (ast.Name, ast.Attribute)):
            # A name bound to it is surely it, however it was found itself.
            self._name(mutation.value, mutation.scope, replace(alias, fit=SURE, back=True))

    def _forwards(self, alias: Alias, flow: Flow, fit: int) -> None:
        if flow.kind == "method":
            self._method(alias, flow, fit)
        elif flow.kind == "argument":
            again = alias.again or flow.again
            for subject in self._project.parameters(flow):
                self._add(Alias(subject, alias.depth + 1, fit, True, alias.back, again))
        elif flow.target is not None:
            # A default's variable is a parameter of the function, although it is evaluated outside of it.
            scope = flow.scope if flow.kind != "default" else flow.file.scope_of(flow.node)
            if scope is not None:
                self._name(flow.target, scope, replace(alias, fit=fit))

    def _name(self, target: syntax.Base, scope: Scope, alias: Alias) -> None:
        """Add a name that the object has in a scope."""
        subject: Subject
        depth = alias.depth
        if isinstance(target, ast.Name):
            subject = Variable(scope.resolve(target.id), target.id)
        else:
            # An attribute is seen by everyone: a step as wide as a call.
            subject, depth = self._member(target, scope), depth + 1
        self._add(replace(alias, subject=subject, depth=depth, other=True))

    def _member(self, target: ast.Attribute, scope: Scope) -> Member:
        inner, _ = syntax.peel(target.value)
        owner = syntax.ident(inner)
        home = scope.owner_class()
        if owner in ("self", "cls"):
            return Member(target.attr, frozenset({home.name} if home is not None else ()))
        return Member(target.attr, frozenset(self._project.classes_of(owner)), owner)

    def _method(self, alias: Alias, flow: Flow, fit: int) -> None:
        """`append = losses.append; append(x)`, or the method handed to something that calls it."""
        kind = STORE_METHODS.get(flow.method)
        calls: list[tuple[Placed, ast.expr | None]] = []
        if kind is not None and flow.target is not None:
            calls = list(_calls_of(flow.target, flow))
        elif kind is not None and isinstance(flow.node, ast.Call):
            calls = [(flow, None)]
        for place, value in calls:
            mutation = Mutation(place.node, place.scope, place.context, flow.source, store=kind, value=value)
            self.uses.append(Use(mutation, fit, alias.depth, alias.again))

    def _from_callers(self, alias: Alias) -> None:
        """A parameter that the object came in by is the callers' argument."""
        subject = alias.subject
        # A parameter that was found with the flow got the object from the call that led here; others pass others.
        if not isinstance(subject, Variable) or (alias.other and not alias.back):
            return
        for site, value in self._project.arguments(subject.scope, subject.name):
            if isinstance(value, (ast.Name, ast.Attribute)):
                # Not `other`: what the caller calls it is the object itself.
                caller = Alias(subject, alias.depth + 1, back=True, again=alias.again)
                self._name(value, site.scope, caller)

    def _imports(self, alias: Alias, module: Module) -> None:
        """`from module import losses as kept` in another file."""
        subject = alias.subject
        if not isinstance(subject, Variable) or subject.scope.parent is not None or module is subject.scope.file:
            return
        path = subject.scope.file.path
        for bound, imported in module.imports.items():
            package, _, name = imported.rpartition(".")
            # `from . import losses` names no module.
            relative = not package.strip(".") and path.endswith("__init__.py")
            if name == subject.name and (relative or name_resolution.is_module(path, package)):
                for scope in module.scopes:
                    # An import within a function binds there.
                    if bound in scope.bound:
                        self._add(Alias(Variable(scope, bound), alias.depth, alias.fit, True, alias.back))


def _calls_of(target: syntax.Base, flow: Flow) -> Iterator[tuple[Placed, ast.expr | None]]:
    """The calls of a bound method by the name that it was given, each with its first argument."""
    name = syntax.ident(target)
    home = flow.scope.resolve(name)
    for site in flow.file.calls.get(name, ()):
        func = site.node.func
        plain = isinstance(target, ast.Name) and isinstance(func, ast.Name) and site.scope.resolve(name) is home
        if plain or (isinstance(target, ast.Attribute) and isinstance(func, ast.Attribute)):
            yield site, site.node.args[0] if site.node.args else None
