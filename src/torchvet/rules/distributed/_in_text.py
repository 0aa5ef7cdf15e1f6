"""Lines of the program's text that a fault of several ranks comes from, where no probe stands."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.rules.kit import Iterator, Location, Recording, SourceFile
from torchvet.source.model import is_name

if TYPE_CHECKING:
    from torchvet.source.model.events import Event


def calls_of(recording: Recording, name: str) -> Iterator[tuple[SourceFile, Event]]:
    """Calls of functions or methods of this name, in the files that the run has seen."""
    for path, text in recording.sources.items():
        file = recording.model(path) if name in text else None
        if file is not None:
            yield from ((file, event) for event in file.calls(name))


def first_call(recording: Recording, name: str) -> Location | None:
    """Where the program calls a function of this name first."""
    return next((file.place(event.node, event) for file, event in calls_of(recording, name)), None)


def call_with(recording: Recording, name: str, keyword: str) -> Location | None:
    """Where the program gives a function of this name such an argument first."""
    found = (pair for pair in calls_of(recording, name) if any(k.arg == keyword for k in pair[1].call.keywords))
    return next((file.place(event.node, event) for file, event in found), None)


def use_of(recording: Recording, parameter: str) -> Location | None:
    """Where the module that owns a parameter, by the parameter's path, is called as `self.name(...)`: within a branch
    if there is such a line, as what goes unused in some pass is called in others."""
    owners = [part for part in parameter.split(".")[:-1] if not part.isdigit()]
    found = [pair for pair in calls_of(recording, owners[-1]) if _is_own(pair[1])] if owners else []
    found.sort(key=lambda pair: not pair[1].context.arms)
    return next((file.place(event.node, event) for file, event in found), None)


def given_to(recording: Recording, parameter: str) -> Location | None:
    """Where a part of a model that has this parameter is assigned from outside of it (`model.module.head = ...`)."""
    for path, text in recording.sources.items():
        parts = [part for part in parameter.split(".") if not part.isdigit() and f".{part} =" in text]
        file = recording.model(path) if parts else None
        for node in ast.walk(file.tree) if file is not None else ():
            if file is not None and isinstance(node, ast.Assign) and any(_from_outside(t, parts) for t in node.targets):
                return next((file.place(node, event) for event in file.events_on(node.lineno)), None)
    return None


def _from_outside(target: ast.expr, parts: list[str]) -> bool:
    return isinstance(target, ast.Attribute) and target.attr in parts and not is_name(target.value, "self")


def _is_own(event: Event) -> bool:
    """Whether a call is of an attribute of `self`: many modules are named as functions of torch's are."""
    called = event.call.func
    return isinstance(called, ast.Attribute) and is_name(called.value, "self")
