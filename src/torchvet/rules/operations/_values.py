"""Where a value comes from: followed over the names that hold it and over what is done to it."""

from __future__ import annotations

import ast
from collections.abc import Callable

from torchvet.rules.kit import Iterator
from torchvet.source.model import Event, value_bound

_FARTHEST = 9


def binding_of(node: ast.expr | None, event: Event) -> tuple[ast.expr, Event] | None:
    """What the one statement that surely bound a variable gave it, with its event; None where there is no such."""
    if not event.is_own(node):
        return None
    reaching = event.unit.file.devices.reaching(node.id, event)
    value = value_bound(reaching[0].node, node.id) if len(reaching) == 1 else None
    return (value, reaching[0]) if value is not None else None


def followed(
    node: ast.expr | None, event: Event, inner: Callable[[ast.expr, Event], ast.expr | None]
) -> Iterator[tuple[ast.expr, Event]]:
    """An expression, what that is made from, and so on, each with the event that it stands at.

    A name leads to what it was bound to in the same turn of the loop, anything else to what `inner` says.
    """
    for _ in range(_FARTHEST):
        if node is None:
            return
        yield node, event
        if isinstance(node, ast.Name):
            bound = binding_of(node, event)
            # What another turn of the loop bound may be another tensor, on another device or of another shape.
            if bound is None or bound[1].loop is not event.loop:
                return
            node, event = bound
        else:
            node = inner(node, event)
