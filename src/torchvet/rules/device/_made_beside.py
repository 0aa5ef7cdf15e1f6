"""Tensors that a function makes with another's dtype, and not on its device, and joins with it."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.source.model import Event, is_call, is_name, keyword, name_set, receiver, torch_names, value_bound, walk

_LIKE = re.compile(r"dtype=\w+\.dtype")
_JOINING = name_set(
    "torch.cat torch.stack torch.where torch.matmul torch.mm torch.bmm torch.concat torch.hstack torch.vstack"
)
_MOVES = ("to", "cuda", "type_as", "cpu")


def made_beside(file: SourceFile) -> Iterator[tuple[Event, str, ast.expr]]:
    """Calls of torch that make such a tensor, each with the name of the other one and where both are joined."""
    if file.devices.default_changed:
        return
    found = (at for at in file.words.positions("dtype=") if _LIKE.match(file.text, at))
    for unit in file.units_at(sorted({file.line_of(at) for at in found})):
        for event in unit.events:
            other = _whose_dtype(file, event) if isinstance(event.node, ast.Call) else ""
            joined = _joined(file, event, other) if other else None
            if joined is not None:
                yield event, other, joined


def _whose_dtype(file: SourceFile, event: Event) -> str:
    """The variable whose dtype a call of torch takes for a tensor with dimensions, if nothing says a device."""
    call, dotted = event.call, file.dotted(event.call.func)
    if not torch_names.is_factory(dotted) or not call.args or any(k.arg in ("device", None) for k in call.keywords):
        return ""
    taken, size = keyword(call, "dtype"), call.args[0]
    if not isinstance(taken, ast.Attribute) or taken.attr != "dtype" or not event.is_own(taken.value):
        return ""
    listed = isinstance(size, (ast.List, ast.Tuple))
    scalar = (listed and not size.elts) or (dotted == "torch.tensor" and not listed)  # type: ignore[attr-defined]
    # What is surely on the host fits.
    return "" if scalar or file.devices.of(taken.value, event) == "cpu" else taken.value.id


def _joined(file: SourceFile, event: Event, other: str) -> ast.expr | None:
    """Where a new tensor, or the one name that it is bound to, meets the other one in an operation of both."""
    name = _name_given(event)
    if name and (len(event.unit.bindings[name]) != 1 or _is_moved(event, name)):
        return None
    if _is_moved(event, other, back=True):
        return None
    uses = (use for use in event.unit.events[event.index :] if not use.excludes(event))
    together = (node for use in uses for node in _operations(file, use) if _takes(node, name, event.node))
    return next((node for node in together if any(is_name(n, other) for n in _sides(node))), None)


def _name_given(event: Event) -> str:
    """The one variable that a call's result is bound to."""
    statement = event.statement
    named = statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is event.node else None
    return named.id if isinstance(named, ast.Name) else ""


def _takes(node: ast.expr, name: str, made: ast.AST) -> bool:
    """Whether an operation holds a new tensor, by its name or where it is made."""
    return any(is_name(n, name) if name else n is made for n in walk(node))


def _operations(file: SourceFile, event: Event) -> list[ast.expr]:
    """Operations of an event that need their tensors on one device."""
    if isinstance(event.node, ast.Call):
        return [event.node] if file.dotted(event.node.func) in _JOINING else []
    value = event.node.value if isinstance(event.node, (ast.Assign, ast.Return)) else None
    return [n for n in walk(value) if isinstance(n, ast.BinOp)] if value is not None else []


def _sides(node: ast.expr) -> list[ast.expr]:
    """The tensors that an operation takes, as they are named."""
    given = [node.left, node.right] if isinstance(node, ast.BinOp) else getattr(node, "args", [])
    return [n for one in given for n in (one.elts if isinstance(one, (ast.List, ast.Tuple)) else [one])]


def _is_moved(event: Event, name: str, back: bool = False) -> bool:
    """Whether a variable is moved in its unit; `back` where it is brought to the host."""
    calls = [e.call for one in (_MOVES[3:] if back else _MOVES[:3]) for e in event.unit.calls.get(one, ())]
    moved = any(is_name(receiver(call), name) for call in calls if _moves_it(call))
    return moved or (back and any(is_call(value_bound(e.node, name), "cpu") for e in event.unit.bindings.get(name, ())))


def _moves_it(call: ast.Call) -> bool:
    """Whether a call moves: `.to(dtype=…)` does not."""
    return not (is_call(call, "to") and not call.args and all(k.arg == "dtype" for k in call.keywords))
