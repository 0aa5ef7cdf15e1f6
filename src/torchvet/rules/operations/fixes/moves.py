"""Edits that move a tensor to the device once where every turn of a loop moves it."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Sequence, SourceFile
from torchvet.rules.shared.step_code import bound_in
from torchvet.source.model import Event, Loop, edits, names_in, reads_of, receiver, terminal
from torchvet.source.model.steps import text_of


def moved_once(file: SourceFile, event: Event) -> Sequence[Edit]:
    """`name.to(device)` of every turn done once: before the loop, or where the attribute is bound."""
    call, on = event.call, receiver(event.call)
    given = [*call.args, *(k.value for k in call.keywords)]
    if call.lineno != call.end_lineno or len(given) > 1:
        return ()
    said = given[0] if given else None
    if isinstance(on, ast.Name):
        return _of_name(file, event, on.id, said)
    if isinstance(on, ast.Attribute) and text_of(on.value) == event.unit.self_name() != "":
        return _of_attribute(file, event, on, said)
    return ()


def _of_name(file: SourceFile, event: Event, name: str, said: ast.expr | None) -> Sequence[Edit]:
    """A name that is bound once, before the loop, and that nothing else reads."""
    unit, bound = event.unit, event.unit.bindings.get(name, [])
    if unit.home(name) is not unit or len(bound) != 1 or bound[0].index > event.index or bound[0].context.arms:
        return ()
    loop = _outermost(event, bound[0])
    code = file.tree if unit.is_module else unit.node
    reads = reads_of(code, name)
    if loop is None or len(reads) != 1 or names_in(said) & bound_in(loop, unit) or not _is_steady(said):
        return ()
    put = edits.before(file, loop.node, f"{name} = {file.segment(event.node)}")  # type: ignore[arg-type]
    return [*put, edits.replace(file, event.call, name)] if put else ()


def _outermost(event: Event, binding: Event) -> Loop | None:
    """The outermost loop around an event that a binding is not in; None where that is none of statements."""
    loop = event.loop
    while loop is not None and loop.parent is not None and not binding.inside(loop.parent):
        loop = loop.parent
    if loop is None or binding.inside(loop) or not isinstance(loop.node, (ast.For, ast.While)):
        return None
    return loop


def _is_steady(said: ast.expr | None) -> bool:
    """Whether what names a device is a name, a constant, `self.device` or `x.device`, and calls nothing."""
    if isinstance(said, ast.Attribute):
        return isinstance(said.value, ast.Name)
    return said is None or isinstance(said, (ast.Name, ast.Constant))


def _of_attribute(file: SourceFile, event: Event, on: ast.Attribute, said: ast.expr | None) -> Sequence[Edit]:
    """`self.name` that `__init__` alone binds and that is only ever moved: in a module a buffer, which moves with it;
    in other classes moved where it is bound, if the device is known there."""
    owner = event.unit.method_class()
    found = owner.attributes.get(on.attr, []) if owner is not None else []
    if owner is None or len(found) != 1 or not _only_moved(file, on.attr):
        return ()
    binding, value = found[0]
    if value is None or not _bound_once(binding, value):
        return ()
    own = binding.unit.self_name()
    if "module" in file.roles.of_class(owner):
        buffer = f'{own}.register_buffer("{on.attr}", {file.segment(value)}, persistent=False)'
        return [edits.replace(file, binding.statement, buffer)] if _may_be_buffer(file, value, binding) else ()
    if not isinstance(said, ast.Attribute) or text_of(said.value) != event.unit.self_name():
        return ()
    device = owner.attributes.get(said.attr, [])
    known = len(device) == 1 and device[0][0].unit is binding.unit and device[0][0].index <= binding.index
    return [edits.called_on(file, value, f"to({own}.{said.attr})")] if known else ()


def _bound_once(binding: Event, value: ast.expr) -> bool:
    """Whether a constructor binds an attribute to a value by a statement of its own, on one line, in any case."""
    statement = binding.statement
    whole = isinstance(statement, ast.Assign) and statement.value is value and len(statement.targets) == 1
    always = binding.unit.name == "__init__" and not binding.context.arms and binding.loop is None
    return whole and always and edits.on_one_line(statement)


def _may_be_buffer(file: SourceFile, value: ast.expr, binding: Event) -> bool:
    """Whether what a constructor binds may be registered as a buffer there: it is nothing that the module registers by
    itself (a parameter would be trained no more), and `super().__init__()` has run."""
    registered = isinstance(value, ast.Call) and terminal(value).endswith(("Parameter", "Buffer"))
    ready = any(e.index < binding.index for e in binding.unit.calls.get("__init__", ()))
    return not registered and ready and not file.roles.is_a("module", value, binding.unit)


def _only_moved(file: SourceFile, attribute: str) -> bool:
    """Whether every read of an attribute of this name is moved at once."""
    nodes = [n for n in ast.walk(file.tree) if isinstance(n, ast.Attribute)]
    reads = {id(n) for n in nodes if n.attr == attribute and isinstance(n.ctx, ast.Load)}
    moved = {id(n.value) for n in nodes if n.attr in ("to", "cuda")}
    return reads <= moved
