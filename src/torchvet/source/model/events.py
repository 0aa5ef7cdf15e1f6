"""What a unit of code does, in the order of evaluation: each event with the loops, branches and `with`s around it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from torchvet.source.walking import Arm as Arm
from torchvet.source.walking import Context as Context
from torchvet.source.walking import Loop, Walker, exclude

if TYPE_CHECKING:
    from torchvet.source.model.units import Unit


@dataclass(eq=False, slots=True)
# `eq=False`: two events are the same only if they are one, and they are looked up in sets.
class Event:
    """One call, binding, return, yield or deletion. `index` counts in the order of evaluation within the unit.

    `parent` is the expression or statement right around the node, `statement` the statement that it belongs to.
    """

    node: ast.AST
    parent: ast.AST
    statement: ast.stmt
    context: Context
    unit: Unit
    index: int

    @property
    def loop(self) -> Loop | None:
        """The innermost loop around it within its unit."""
        return self.context.loop

    @property
    def line(self) -> int:
        """The first line of the node, or of its statement where the node has none of its own."""
        return int(getattr(self.node, "lineno", self.statement.lineno))

    @property
    def call(self) -> ast.Call:
        """The node of an event that is known to be a call."""
        return self.node  # type: ignore[return-value]

    def excludes(self, other: Event) -> bool:
        """Whether the two lie in different arms of one branch, so that one pass never runs both."""
        return exclude(self.context.arms, other.context.arms)

    def inside(self, loop: Loop | None) -> bool:
        """Whether it runs in every turn of a loop of its unit; None stands for the unit itself."""
        own = self.context.loop
        return loop is None or (own is not None and own.within(loop))

    def sure_after(self, other: Event) -> bool:
        """Whether a pass that reaches `self` has been through the branches of `other`."""
        mine, others = self.context.arms, other.context.arms
        # Whatever branches `other` lies in, `self` lies in them too.
        return not others or all(arm in mine for arm in others)

    def is_own(self, node: ast.AST | None) -> TypeGuard[ast.Name]:
        """Whether a node is a variable of its own unit: what another unit binds, nobody knows when."""
        return isinstance(node, ast.Name) and self.unit.home(node.id) is self.unit

    def bindings_before(self, name: str) -> list[Event]:
        """The bindings of a name in its unit that may come before it, in order."""
        return [e for e in self.unit.bindings.get(name, ()) if e.index < self.index and not e.excludes(self)]

    def binding_of(self, name: str) -> Event | None:
        """The binding of a name in its unit that it sees; None where there is none, or branches make that unsure."""
        before = self.bindings_before(name)
        return before[-1] if before and self.sure_after(before[-1]) else None


class UnitWalker(Walker):
    """Makes the events of one unit. Nested functions and classes are units of their own and are skipped."""

    def __init__(self, unit: Unit) -> None:
        super().__init__()
        self.unit = unit
        self.events: list[Event] = []

    def emit(self, node: ast.AST, parent: ast.AST) -> None:
        """Add an event."""
        self.events.append(Event(node, parent, self.statement, self.context, self.unit, len(self.events)))
