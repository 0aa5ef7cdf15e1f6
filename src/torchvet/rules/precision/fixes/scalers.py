"""Edits of the call that makes a gradient scaler: its device, its switch, and where it is made."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Sequence, SourceFile
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source.model import Event, Loop, Unit, blocks, edits, keyword, walk

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
    given = [autocast.arguments(file, r.call).get("device_type") if r.call is not None else None for r in regions]
    texts = {file.segment(node) if node is not None else "" for node in given}
    if len(texts) != 1 or not texts.isdisjoint({""}) or given[0] is None:
        return []
    node = given[0]
    if isinstance(node, ast.Constant):
        return _given_device(file, made, file.segment(node))
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name) or not isinstance(node, (ast.Name, ast.Attribute)):
        return []
    home = made.unit.home(root.id)
    bound = home.bindings.get(root.id, []) if home is not None else []
    before = bool(bound) and (bound[0].index < made.index if home is made.unit else home is file.top)
    known = home is not None and home is at.home(root.id) and root.id not in home.parameters and before
    return _given_device(file, made, file.segment(node)) if known else []


def _given_device(file: SourceFile, made: Event, text: str) -> list[Edit]:
    call = made.call
    if file.dotted(call.func) not in _BY_DEVICE or any(isinstance(a, ast.Starred) for a in call.args):
        return []
    given = keyword(call, "device") or (call.args[0] if call.args else None)
    if given is not None:
        return [edits.replace(file, given, text)] if isinstance(given, ast.Constant) else []
    if call.keywords:
        at = edits.start_of(file, min(call.keywords, key=lambda k: (k.lineno, k.col_offset)))
        return [Edit(path=file.path, start=at, end=at, text=f"{text}, ")]
    return edits.with_argument(file, call, text)


# Made once -----------------------------------------------------------------------------------------------------------


def before_the_loop(file: SourceFile, made: Event, loop: Loop) -> list[Edit]:
    """What makes a scaler moved from a loop's body to right before the loop; nothing where it goes by what the loop
    binds."""
    node, statement = loop.node, made.statement
    if not isinstance(node, (ast.For, ast.AsyncFor, ast.While)) or not any(s is statement for s in node.body):
        return []
    names = {n.id for n in walk(made.call) if isinstance(n, ast.Name)}
    bound = any(b.inside(loop) for n in names for b in made.unit.bindings.get(n, ()))
    again = [b for b in made.unit.bindings.get(scaling.bound_to(made), ()) if b.inside(loop)]
    if bound or len(again) > 1 or len(node.body) < 2 or statement.lineno != statement.end_lineno:
        return []
    taken = blocks.without(file, [statement])
    put = edits.before(file, node, file.lines[statement.lineno - 1].strip()) if taken else []
    return [*put, *taken] if put else []


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
    body = getattr(there.node, "body", [])
    free = not owner.attributes.get(name) and not any(name in u.bindings for u in (there,))
    plain = all(_is_known_everywhere(file, n.id, there) for n in walk(made.call) if isinstance(n, ast.Name))
    simple = made.call.lineno == made.call.end_lineno and any(s is where[0].statement for s in body)
    if not name.isidentifier() or not free or not plain or not simple or there.self_name() != own:
        return []
    put = edits.after(file, where[0].statement, f"{own}.{name} = {file.segment(made.call)}")
    return [*put, edits.replace(file, made.call, f"{own}.{name}")] if put else []


def handed_in(file: SourceFile, made: Event, name: str) -> list[Edit]:
    """A scaler that a function makes each time, made before the loop that calls it and handed to it."""
    unit = made.unit
    node, callers = unit.node, file.callers(unit)
    if isinstance(node, ast.Module) or unit.owner is not None or len(callers) != 1 or not name.isidentifier():
        return []
    caller, arguments = callers[0], node.args
    named = [n for n in walk(file.tree) if isinstance(n, ast.Name) and n.id == unit.name]
    bound = unit.bindings.get(name, [])
    top = any(s is made.statement for s in node.body) and len(node.body) > 1
    plain = not (arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults)
    plain = plain and not arguments.posonlyargs
    taken_there = caller.unit.home(name) is not None
    if len(named) != 1 or len(bound) != 1 or not top or not plain or taken_there or name in unit.parameters:
        return []
    if not all(_is_known_everywhere(file, n.id, caller.unit) for n in walk(made.call) if isinstance(n, ast.Name)):
        return []
    return _handed(file, made, name, caller)


def _handed(file: SourceFile, made: Event, name: str, caller: Event) -> list[Edit]:
    node, loop = made.unit.node, _outermost(caller)
    if isinstance(node, ast.Module) or loop is None or not isinstance(loop.node, (ast.For, ast.While)):
        return []
    last = max(node.args.args, key=lambda a: (a.lineno, a.col_offset), default=None)
    if last is None or made.statement.lineno != made.statement.end_lineno:
        return []
    end = (last.end_lineno or last.lineno, file.column(last.end_lineno or last.lineno, last.end_col_offset or 0))
    parameter = Edit(path=file.path, start=end, end=end, text=f", {name}")
    given = edits.with_argument(file, caller.call, f"{name}={name}")
    put = edits.before(file, loop.node, file.lines[made.statement.lineno - 1].strip())
    taken = blocks.without(file, [made.statement])
    return [*put, parameter, *given, *taken] if put and given and taken else []


def _outermost(caller: Event) -> Loop | None:
    """The loop around a call that binds nothing that it is given but what it goes through: the innermost will do."""
    loop = caller.loop
    while loop is not None and loop.comprehension:
        loop = loop.parent
    return loop


def _is_known_everywhere(file: SourceFile, name: str, unit: Unit) -> bool:
    """Whether a name means an import or something of the file's own level in a unit."""
    home = unit.home(name)
    return (home is None and name in file.imports.names) or (home is file.top and not unit.is_module)
