"""Calls that may switch a model's mode where source does not say which way; context managers, which switch twice."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.source.model import Event, Unit, receiver, terminal

_SWITCHES = re.compile(r"(^|_)(eval|evaluat\w*|mode|freeze)($|_)|Eval|Mode|Freeze")
"""Names of functions from elsewhere that switch modes, and of decorators."""


def entered(event: Event) -> bool:
    """Whether a call makes the context manager of a `with` statement."""
    items = event.statement.items if isinstance(event.statement, (ast.With, ast.AsyncWith)) else []
    return any(item.context_expr is event.node for item in items)


def within(event: Event, manager: Event) -> bool:
    """Whether an event happens before the block of a context manager is left."""
    return event.statement is manager.statement or manager.node in event.context.withs


def first_yield(unit: Unit) -> Event | None:
    """Where a generator hands over for the first time: a context manager's body runs there."""
    return next((e for e in unit.events if e.node.__class__ is ast.Yield), None)


def switched_unseen(file: SourceFile, event: Event, callee: Unit | None) -> Iterator[ast.expr]:
    """The models whose mode a call may switch out of sight: a context manager that the file does not write as a
    generator, a function from elsewhere whose name says so, or a decorator."""
    dotted = file.dotted(event.call.func)
    if dotted.startswith("torch.") or (receiver(event.call) is not None and terminal(event.node) in ("eval", "train")):
        return
    if callee is None or callee.name == "__init__":
        unseen = entered(event) or bool(_SWITCHES.search(terminal(event.node)))
    else:
        unseen = any(_SWITCHES.search(d.rpartition(".")[2]) for d in callee.decorators if not d.startswith("torch."))
    if not unseen:
        return
    given = [receiver(event.call), *event.call.args, *(k.value for k in event.call.keywords)]
    for node in given:
        if node is not None and file.roles.is_a("module", node, event.unit):
            yield node
