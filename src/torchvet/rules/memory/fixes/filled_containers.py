"""Edits where a container that a function fills is stored whole: what goes into it is what holds the memory."""

from __future__ import annotations

import ast

from torchvet.rules.core.fixing import all_or_none, may_be_tensor, with_method
from torchvet.rules.kit import Edits, Iterator, SourceFile
from torchvet.rules.memory._stores import Stored, store, under_a_key
from torchvet.source.model import Event, Unit, terminal, value_bound
from torchvet.source.model.destinations import reaching

_MADE = ("dict", "list", "defaultdict", "OrderedDict", "deque", "Counter")


def filled_with(file: SourceFile, kept: Stored, method: str) -> Edits | None:
    """`out["loss"] += loss.detach()` where `history.append(out)` is what a run has named: everything that may have a
    graph goes in by way of a method. None where what is stored is no container that the same function makes."""
    value, unit = kept.value, kept.event.unit
    if not isinstance(value, ast.Name) or unit.home(value.id) is not unit or value.id in unit.parameters:
        return None
    made = [_is_container(v) for v in _values(value.id, kept.event)]
    if not any(made):
        return None
    fills = [f for f in _fills(unit, value.id) if may_be_tensor(f.value)] if all(made) else []
    carried = [(f, file.gradients.carries(f.value, f.event)) for f in fills]
    surely = [f for f, answer in carried if answer == "yes"]
    filled = surely or [f for f, answer in carried if answer != "no"]
    return all_or_none(with_method(file, f.value, method) for f in filled)


def _values(name: str, event: Event) -> Iterator[ast.expr | None]:
    """What a name may be bound to at an event: a list that was joined to one tensor is none there any more."""
    for binding in reaching(name, event):
        if not isinstance(binding.node, ast.AugAssign):
            yield value_bound(binding.node, name)


def _is_container(value: ast.expr | None) -> bool:
    """Whether an expression is a container written down, or one made empty."""
    shown = (ast.Dict, ast.List, ast.DictComp, ast.ListComp)
    return isinstance(value, shown) or (isinstance(value, ast.Call) and terminal(value) in _MADE)


def _fills(unit: Unit, name: str) -> Iterator[Stored]:
    """What the function stores into a name, or into what the name holds: `out["mae"].append(x)`."""
    for event in unit.events:
        one = store(event) or under_a_key(event)
        if one is not None and one.variable == name:
            yield one
