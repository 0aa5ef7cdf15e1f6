"""Edits of the call that makes a gradient scaler: its device, its switch, and where it is made."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Sequence, SourceFile
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision.fixes.moves import together
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source.model import Event, Loop, Unit, blocks, edits, keyword, names_in, walk

_BY_DEVICE = ("torch.amp.GradScaler", "torch.GradScaler", "torch.amp.grad_scaler.GradScaler")


def switched_off(file: SourceFile, made: Event) -> list[Edit]:
    """A scaler that does nothing: `enabled=False`."""
    switch = keyword(made.call, "enabled")
    if switch is not None:
        return [edits.replace(file, switch, "False")]
    given = [*made.call.args, *made.call.keywords]
    if any(isinstance(one, ast.Starred) or getattr(one, "arg", "") is None for one in given) or len(made.call.args) > 1:
        return []
    return edits.with_argument(file, made.call, "enabled=False")


def for_device(file: SourceFile, made: Event, device: str) -> list[Edit]:
    """A scaler made for a device; nothing where its class is CUDA's own."""
    return _given_device(file, made, f'"{device}"')


def for_device_of(file: SourceFile, made: Event, regions: Sequence[autocast.Region], at: Unit) -> list[Edit]:
    """A scaler made for the device that every autocast region of the file is opened for, by the name that these use,
    where that is bound before."""
    given = [autocast.argument(file, region, "device_type") for region in regions]
    node = given[0]
    if node is None or any(one is None or file.segment(one) != file.segment(node) for one in given):
        return []
    known = isinstance(node, ast.Constant) or _is_bound_before(file, node, made, at)
    return _given_device(file, made, file.segment(node)) if known else []


def _is_bound_before(file: SourceFile, node: ast.expr, made: Event, at: Unit) -> bool:
    """Whether a name, or an attribute of one, means the same where a scaler is made as in another unit."""
    while isinstance(node, ast.Attribute):
        node = node.value
    home = made.unit.home(node.id) if isinstance(node, ast.Name) else None
    if home is None or not isinstance(node, ast.Name) or home is not at.home(node.id) or node.id in home.parameters:
        return False
    bound = home.bindings.get(node.id, [])
    return bool(bound) and (bound[0].index < made.index if home is made.unit else home is file.top)


def _given_device(file: SourceFile, made: Event, text: str) -> list[Edit]:
    call = made.call
    if file.dotted(call.func) not in _BY_DEVICE or any(isinstance(a, ast.Starred) for a in call.args):
        return []
    given = keyword(call, "device") or (call.args[0] if call.args else None)
    if given is not None:
        return [edits.replace(file, given, text)] if isinstance(given, ast.Constant) else []
    if call.keywords:
        first = min(call.keywords, key=lambda k: (k.lineno, k.col_offset))
        return [edits.insert(file, edits.start_of(file, first), f"{text}, ")]
    return edits.with_argument(file, call, text)


# Made once -----------------------------------------------------------------------------------------------------------


def before_the_loop(file: SourceFile, made: Event, loop: Loop) -> list[Edit]:
    """What makes a scaler moved from a loop's body to right before the loop; nothing where it goes by what the loop
    binds."""
    node, statement = loop.node, made.statement
    if not isinstance(node, (ast.For, ast.AsyncFor, ast.While)) or statement not in node.body:
        return []
    bound = any(b.inside(loop) for n in names_in(made.call) for b in made.unit.bindings.get(n, ()))
    again = [b for b in made.unit.bindings.get(scaling.bound_to(made), ()) if b.inside(loop)]
    if bound or len(again) > 1 or len(node.body) < 2 or statement.lineno != statement.end_lineno:
        return []
    return together(edits.before(file, node, _line(file, statement)), blocks.without(file, [statement]))


def _line(file: SourceFile, statement: ast.stmt) -> str:
    return file.lines[statement.lineno - 1].strip()


def kept_on_self(file: SourceFile, made: Event, name: str, optimizer: str) -> list[Edit]:
    """A scaler that a method makes for `self.optimizer`, made next to that and kept beside it."""
    unit, own = made.unit, made.unit.self_name()
    owner, attribute = unit.owner, optimizer.removeprefix(f"{own}.")
    if owner is None or not own or not optimizer.startswith(f"{own}.") or not attribute.isidentifier():
        return []
    where = [event for event, _ in owner.attributes.get(attribute, ())]
    if len(where) != 1 or where[0].unit.name != "__init__" or where[0].unit.owner is not owner:
        return []
    there = where[0].unit
    free = name.isidentifier() and not owner.attributes.get(name) and name not in there.bindings
    simple = made.call.lineno == made.call.end_lineno and where[0].statement in getattr(there.node, "body", [])
    if not free or not simple or there.self_name() != own or not _means_the_same(file, made.call, there):
        return []
    kept = edits.after(file, where[0].statement, f"{own}.{name} = {file.segment(made.call)}")
    return together(kept, [edits.replace(file, made.call, f"{own}.{name}")])


def handed_in(file: SourceFile, made: Event, name: str) -> list[Edit]:
    """A scaler that a function makes each time, made before the loop that calls it and handed to it."""
    unit, callers = made.unit, file.callers(made.unit)
    node, statement = unit.node, made.statement
    if isinstance(node, ast.Module) or unit.owner is not None or len(callers) != 1 or not name.isidentifier():
        return []
    caller, named = callers[0], [n for n in walk(file.tree) if isinstance(n, ast.Name) and n.id == unit.name]
    given = node.args
    plain = given.args and not (given.vararg or given.kwarg or given.kwonlyargs or given.defaults or given.posonlyargs)
    top = statement in node.body and len(node.body) > 1 and statement.lineno == statement.end_lineno
    if len(named) != 1 or len(unit.bindings.get(name, ())) != 1 or not top or not plain:
        return []
    taken = caller.unit.home(name) is not None or name in unit.parameters
    if taken or not _means_the_same(file, made.call, caller.unit):
        return []
    loop = caller.loop
    while loop is not None and loop.comprehension:
        loop = loop.parent
    if loop is None or not isinstance(loop.node, (ast.For, ast.While)):
        return []
    last = max(given.args, key=lambda a: (a.lineno, a.col_offset))
    end = last.end_lineno or last.lineno
    return together(
        edits.before(file, loop.node, _line(file, statement)),
        [edits.insert(file, (end, file.column(end, last.end_col_offset or 0)), f", {name}")],
        edits.with_argument(file, caller.call, f"{name}={name}"),
        blocks.without(file, [statement]),
    )


def _means_the_same(file: SourceFile, call: ast.Call, unit: Unit) -> bool:
    """Whether each name of a call is an import or of the file's own level, and means that in a function, too."""
    homes = {name: unit.home(name) for name in names_in(call)}
    return all(
        (home is None and name in file.imports.names) or (home is file.top and not unit.is_module)
        for name, home in homes.items()
    )
