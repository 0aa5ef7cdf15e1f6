"""What a training step stores into something that outlives it: a list, a total, an attribute."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from torchvet.rules.kit import Iterator, SourceFile, Step
from torchvet.rules.memory import _keyed, _stores
from torchvet.source.model import Event, Loop, receiver, terminal

_ADDING = ("append", "extend", "appendleft", "add")


@dataclass(frozen=True)
class Kept:
    """`value` is stored in `name` by `event`; `added` where it is added to a total."""

    name: str
    value: ast.expr
    event: Event
    added: bool = False
    key: ast.expr | None = None


def kept_in_steps(file: SourceFile) -> Iterator[Kept]:
    """Stores within a training loop into names that are bound outside of it, in the order of the file."""
    seen: set[int] = set()
    for step in file.steps:
        if step.loop is None:
            continue
        for event in _events_of(step):
            if id(event) in seen:
                continue
            kept = store(event)
            own = event.unit is step.unit
            if kept is None or not (outlives(kept, step.loop) if own else _is_of_others(kept)):
                continue
            if _is_new(kept, step.loop):
                seen.add(id(event))
                yield kept


def _events_of(step: Step) -> Iterator[Event]:
    """What each pass does in the step's own unit, then in the methods without loops that go backward for it."""
    assert step.loop is not None
    yield from (e for e in step.unit.events if e.loop is not None and e.loop.within(step.loop))
    for unit in {id(e.event.unit): e.event.unit for e in step.of("backward")}.values():
        if unit is not step.unit and unit.owner is not None:
            yield from (e for e in unit.events if e.loop is None)


def _is_new(kept: Kept, loop: Loop) -> bool:
    """Whether a key, where the value is stored under one, is another one in each pass of a loop."""
    if kept.key is None:
        return True
    changing = _keyed.loop_of_key(kept.key, kept.event)
    return _keyed.counts_up(kept.key, kept.event) or (changing is not None and loop.within(changing))


def kept_in_loops(file: SourceFile, lines: list[int]) -> Iterator[Kept]:
    """Calls on given lines, in a loop, that put a value into a container from outside of all loops of the function."""
    units = file.units_at(lines)
    for event in (e for unit in units for name in _ADDING for e in unit.calls.get(name, ()) if e.line in lines):
        loop = event.loop
        while loop is not None and loop.parent is not None:
            loop = loop.parent
        kept = store(event) if loop is not None and not loop.comprehension else None
        if kept is not None and loop is not None and outlives(kept, loop):
            yield kept


def kept_under_keys(file: SourceFile, lines: list[int]) -> Iterator[Kept]:
    """Assignments on given lines, made again and again, of a value to a key that is not written down in a dict that
    lasts: an attribute, the module's, or one from outside of all loops of the function."""
    for event in (e for unit in file.units_at(lines) for e in unit.events):
        node = event.node
        target = node.targets[0] if isinstance(node, ast.Assign) and event.line in lines else None
        if not isinstance(target, ast.Subscript) or isinstance(target.slice, ast.Constant):
            continue
        values = file.roles.values(target.value, event.unit)
        if not values or not all(_keyed.is_dict(value) for value, _ in values):
            continue
        loop = event.loop
        while loop is not None and loop.parent is not None:
            loop = loop.parent
        kept = Kept(file.segment(target.value), node.value, event, key=target.slice)  # type: ignore[attr-defined]
        lasts = outlives(kept, loop) if loop is not None else _is_of_others(kept)
        if lasts and _stores.is_repeated(file, event.unit, event):
            yield kept


def _is_of_others(kept: Kept) -> bool:
    """Whether what keeps the value is not the function's own."""
    root, unit = kept.name.split(".")[0].split("[")[0], kept.event.unit
    return root == unit.self_name() or unit.home(root) not in (unit, None)


def store(event: Event) -> Kept | None:
    """What an event stores, where it is `x.append(value)`, `x += value` or `x[key] = value`."""
    node = event.node
    if isinstance(node, ast.Call) and isinstance(event.parent, ast.Expr) and terminal(node) in _ADDING:
        on = receiver(node)
        places = (ast.Name, ast.Attribute, ast.Subscript)
        if len(node.args) == 1 and not node.keywords and isinstance(on, places):
            return Kept(event.unit.file.segment(on), node.args[0], event)
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return Kept(event.unit.file.segment(node.target), node.value, event, added=True)
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        value, name = node.value, node.targets[0].id
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and terminal(value.left) == name:
            return Kept(name, value.right, event, added=True)
    keyed = _keyed.keyed_store(event)
    if keyed is not None:
        return Kept(event.unit.file.segment(keyed.holder), keyed.value, event, key=keyed.key)
    return None


def outlives(kept: Kept, loop: Loop) -> bool:
    """Whether what keeps the value is not made anew in each pass of a loop."""
    root = kept.name.split(".")[0].split("[")[0]
    unit = kept.event.unit
    if root == unit.self_name():
        return True
    home = unit.home(root)
    if home is not unit:
        return home is not None
    return not any(
        b.loop is not None
        and b.loop.within(loop)
        and b.node is not kept.event.node
        and not isinstance(b.node, ast.AugAssign)
        for b in unit.bindings.get(root, ())
    )
