"""Follows an object through its other names, and gathers what the program does to it."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torchvet.source import subjects, syntax
from torchvet.source.flows import Flow
from torchvet.source.module import Module
from torchvet.source.project import Project
from torchvet.source.scopes import Scope
from torchvet.source.subjects import NO, SURE, UNLIKELY, Member, Subject, Variable
from torchvet.source.touches import Touch, method_kind

DEEPEST = 3
"""Calls that an object is followed through."""
_MOST = 400
"""Other names that are looked into before a search ends: names such as `x` are everywhere."""


@dataclass(frozen=True, eq=False)
class Seen:
    """A touch of the object: how surely (`fit`), after how many calls, whether a loop goes around one of these."""

    module: Module
    touch: Touch
    fit: int
    depth: int
    again: bool

    @property
    def line(self) -> int:
        """The first line of the touch."""
        return self.touch.node.lineno


@dataclass(frozen=True)
class Lead:
    """Another name of the object. `alias`: rebinding it changes nothing for the object; `back`: found against the flow,
    so that arithmetic on it may have come before."""

    subject: Subject
    depth: int = 0
    fit: int = SURE
    alias: bool = False
    back: bool = False
    again: bool = False


class Follower:
    """One search. `seen` are the touches, `leads` all the names, after `run`."""

    def __init__(self, project: Project, first: Iterable[str]) -> None:
        self._project = project
        self._first = list(first)
        self._waiting: deque[Lead] = deque()
        self.seen: list[Seen] = []
        self.leads: dict[Subject, Lead] = {}

    def run(self, roots: Iterable[Subject]) -> None:
        """Follow every name there is, nearest first."""
        for root in roots:
            self._add(Lead(root))
        while self._waiting:
            lead = self._waiting.popleft()
            for module in self._modules(lead.subject):
                self._look(lead, module)

    def _add(self, lead: Lead) -> None:
        if lead.depth <= DEEPEST and lead.subject not in self.leads and len(self.leads) < _MOST:
            self.leads[lead.subject] = lead
            self._waiting.append(lead)

    def _modules(self, subject: Subject) -> Iterator[Module]:
        if isinstance(subject, Variable) and subject.scope is not subject.module.top:
            return iter((subject.module,))
        return self._project.containing(subject.name, self._first)

    def fit(self, lead: Lead, base: syntax.Base, scope: Scope, module: Module) -> int:
        """How surely an expression means what a lead names."""
        found = subjects.fit(self._project, lead.subject, base, scope, module)
        return min(found, lead.fit)

    def _look(self, lead: Lead, module: Module) -> None:
        name = lead.subject.name
        for touch in module.touches.get(name, ()):
            found = self.fit(lead, touch.base, touch.scope, module)
            if found == NO:
                continue
            if not (lead.alias and touch.rebinds) and not (lead.back and touch.store == "augmented"):
                self.seen.append(Seen(module, touch, found, lead.depth, lead.again))
            if touch.store in ("assign", "setattr") and found > UNLIKELY and not touch.keys:
                self._backwards(lead, touch, module)
        for flow in module.flows.get(name, ()):
            found = self.fit(lead, flow.source, flow.scope, module)
            if found > UNLIKELY:
                self._forwards(lead, flow, module, found)
        self._imports(lead, module)
        self._from_callers(lead)

    def _forwards(self, lead: Lead, flow: Flow, module: Module, found: int) -> None:
        if flow.kind == "method":
            self._method(lead, flow, module, found)
        elif flow.kind == "argument":
            again = lead.again or flow.loop is not None or self._project.is_hot(flow.scope.function())
            for to in self._project.parameters(flow, module):
                subject: Subject = Variable(to.module, to.scope, to.name)
                if to.is_field:
                    subject = Member(to.name, frozenset({to.scope.name}))
                self._add(Lead(subject, lead.depth + 1, found, True, lead.back, again))
        elif flow.target is not None:
            scope = flow.scope if flow.kind != "default" else module.scope_of(flow.node)
            if scope is not None:
                self._name(flow.target, scope, module, lead, found)

    def _name(
        self, target: syntax.Base, scope: Scope, module: Module, lead: Lead, found: int, back: bool = False
    ) -> None:
        """Add a name that the object has in a scope."""
        subject: Subject
        back, depth = back or lead.back, lead.depth
        if isinstance(target, ast.Name):
            home = scope.resolve(target.id)
            subject = Variable(module, home, target.id)
        else:
            subject, depth = self._member(target, scope), depth + 1
        self._add(Lead(subject, depth, found, True, back, lead.again))

    def _member(self, target: ast.Attribute, scope: Scope) -> Member:
        inner, _ = syntax.peel(target.value)
        owner = syntax.ident(inner)
        home = scope.owner_class()
        if owner in ("self", "cls"):
            return Member(target.attr, frozenset({home.name} if home is not None else ()))
        return Member(target.attr, frozenset(self._project.classes_of(owner)), owner)

    def _method(self, lead: Lead, flow: Flow, module: Module, found: int) -> None:
        """`append = losses.append; append(x)`, or the method handed to something that calls it."""
        kind = method_kind(flow.method)
        if kind is None:
            return
        if flow.target is None:
            if isinstance(flow.node, ast.Call):
                touch = Touch(flow.source, flow.scope, flow.node, flow.loop, store=kind)
                self.seen.append(Seen(module, touch, found, lead.depth, lead.again))
            return
        name = syntax.ident(flow.target)
        home = flow.scope.resolve(name)
        for site in module.calls.get(name, ()):
            plain = isinstance(flow.target, ast.Name) and isinstance(site.node.func, ast.Name)
            called = plain and site.scope.resolve(name) is home
            if called or (isinstance(flow.target, ast.Attribute) and isinstance(site.node.func, ast.Attribute)):
                value = site.node.args[0] if site.node.args else None
                touch = Touch(flow.source, site.scope, site.node, site.loop, store=kind, value=value)
                self.seen.append(Seen(module, touch, found, lead.depth, lead.again))

    def _backwards(self, lead: Lead, touch: Touch, module: Module) -> None:
        """`self.history = history`: what happens to `history`, here or where it came from, happens to the object."""
        if isinstance(touch.value, (ast.Name, ast.Attribute)):
            self._name(touch.value, touch.scope, module, lead, SURE, back=True)

    def _from_callers(self, lead: Lead) -> None:
        """A parameter that the object came in by is the callers' argument."""
        subject = lead.subject
        if not isinstance(subject, Variable) or (lead.alias and not lead.back):
            return
        for module, site, value in self._project.arguments(subject.scope, subject.name):
            if isinstance(value, (ast.Name, ast.Attribute)):
                caller = Lead(subject, lead.depth + 1, again=lead.again)
                self._name(value, site.scope, module, caller, SURE, back=True)

    def _imports(self, lead: Lead, module: Module) -> None:
        """`from module import losses as kept` in another file."""
        subject = lead.subject
        if not isinstance(subject, Variable) or subject.scope is not subject.module.top or module is subject.module:
            return
        for bound, imported in module.imports.items():
            relative = not imported.module and subject.module.path.endswith("__init__.py")
            if imported.name == subject.name and (relative or subjects.is_module(subject.module.path, imported.module)):
                for scope in module.scopes:
                    if bound in scope.bound:
                        self._add(Lead(Variable(module, scope, bound), lead.depth, lead.fit, True, lead.back))
