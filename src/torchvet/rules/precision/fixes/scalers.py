"""Edits of the call that makes a gradient scaler: its device, its switch, and where it is made."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Sequence, SourceFile
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision.fixes.moves import together
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source.model import Event, Loop, Unit, blocks, edits, is_name, keyword, names_in, root_of, walk

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
    root = root_of(node)
    home = made.unit.home(root) if root else None
    if home is None or home is not at.home(root) or root in home.parameters:
        return False
    bound = home.bindings.get(root, [])
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
    if not isinstance(node, (ast.For, ast.AsyncFor, ast.While)) or not _can_leave(node.body, statement):
        return []
    bound = any(b.inside(loop) for n in names_in(made.call) for b in made.unit.bindings.get(n, ()))
    again = [b for b in made.unit.bindings.get(scaling.bound_to(made), ()) if b.inside(loop)]
    if bound or len(again) > 1:
        return []
    return together(edits.before(file, node, _line(file, statement)), blocks.without(file, [statement]))


def _can_leave(block: Sequence[ast.stmt], statement: ast.stmt) -> bool:
    """Whether a statement on one line is one of several of a block."""
    return statement in block and len(block) > 1 and statement.lineno == statement.end_lineno


def _line(file: SourceFile, statement: ast.stmt) -> str:
    return file.lines[statement.lineno - 1].strip()


def kept_on_self(file: SourceFile, made: Event, name: str, optimizer: str) -> list[Edit]:
    """A scaler that a method makes for `self.optimizer`, made next to that and kept beside it."""
    unit, own = made.unit, made.unit.self_name()
    owner, attribute = unit.owner, optimizer.removeprefix(f"{own}.")
    if owner is None or not own or optimizer != f"{own}.{attribute}":
        return []
    bound = owner.attributes.get(attribute, ())
    first = owner.methods.get("__init__")
    if first is None or len(bound) != 1 or bound[0][0].statement not in first.node.body or first.self_name() != own:
        return []
    free = name.isidentifier() and not owner.attributes.get(name) and name not in first.bindings
    if not free or not edits.on_one_line(made.call) or not _means_the_same(file, made.call, first):
        return []
    kept = edits.after(file, bound[0][0].statement, f"{own}.{name} = {file.segment(made.call)}")
    return together(kept, [edits.replace(file, made.call, f"{own}.{name}")])


def handed_in(file: SourceFile, made: Event, name: str) -> list[Edit]:
    """A scaler that a function makes each time, made before the loop that calls it and handed to it."""
    unit, callers, statement = made.unit, file.callers(made.unit), made.statement
    caller = callers[0] if len(callers) == 1 and unit.owner is None else None
    if caller is None or not _is_new(name, unit, caller) or not _can_leave(unit.node.body, statement):
        return []
    # Handed on as a value, the function would be called without a scaler elsewhere.
    named = [n for n in walk(file.tree) if is_name(n, unit.name)]
    loop = caller.loop.statement() if caller.loop is not None else None
    if len(named) != 1 or loop is None or not isinstance(loop.node, (ast.For, ast.While)):
        return []
    if not _means_the_same(file, made.call, caller.unit):
        return []
    return together(
        edits.before(file, loop.node, _line(file, statement)),
        _one_more_parameter(file, unit, name),
        edits.with_argument(file, caller.call, f"{name}={name}"),
        blocks.without(file, [statement]),
    )


def _is_new(name: str, unit: Unit, caller: Event) -> bool:
    """Whether a name means one thing in a function, which it binds itself, and nothing where that is called."""
    once = len(unit.bindings.get(name, ())) == 1 and name not in unit.parameters
    return once and name.isidentifier() and caller.unit.home(name) is None


def _one_more_parameter(file: SourceFile, unit: Unit, name: str) -> list[Edit]:
    """A parameter more behind a function's last; nothing where it has others than plain ones."""
    asked = unit.node.args  # type: ignore[union-attr]
    if not asked.args or asked.vararg or asked.kwarg or asked.kwonlyargs or asked.defaults or asked.posonlyargs:
        return []
    return edits.before_the_bracket(file, asked.args[-1], f", {name}")


def _means_the_same(file: SourceFile, call: ast.Call, unit: Unit) -> bool:
    """Whether each name of a call is an import or of the file's own level, and means that in a function, too."""
    homes = {name: unit.home(name) for name in names_in(call)}
    return all(
        (home is None and name in file.imports.names) or (home is file.top and not unit.is_module)
        for name, home in homes.items()
    )
