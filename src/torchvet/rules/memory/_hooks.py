"""Where hooks are registered, and which functions they are."""

from __future__ import annotations

import ast

from torchvet.rules.kit import SourceFile
from torchvet.source.model import Event, Loop, Unit, is_call, is_name, receiver, terminal

ON_MODULES = tuple(
    f"register_{when}_hook" for when in ("forward", "forward_pre", "full_backward", "backward", "full_backward_pre")
)
ON_TENSORS = ("register_hook", "register_post_accumulate_grad_hook")
_MEMBERS = {"modules", "named_modules", "children", "named_children", "parameters", "named_parameters"}


def hook_of(event: Event) -> ast.expr | None:
    """What a registration is given as the hook."""
    return next(iter(event.call.args), None)


def hook_functions(file: SourceFile, event: Event) -> list[Unit]:
    """The functions of this file that a registration may install: by name, a method, what a factory returns."""
    given = hook_of(event)
    while is_call(given, "partial") and given.args:
        given = given.args[0]
    if isinstance(given, ast.Call):
        return _made_in(file, event.unit.call_of(given))
    if isinstance(given, ast.Name):
        return [u for u in file.functions(given.id) if u.owner is None]
    owner = event.unit.method_class()
    if owner is None or not isinstance(given, ast.Attribute) or not is_name(given.value, event.unit.self_name()):
        return []
    method = owner.method(given.attr)
    return [method] if method is not None else []


def _made_in(file: SourceFile, made: Event | None) -> list[Unit]:
    """The functions that a factory defines. Which of them it returns is not asked: it has one, as a rule."""
    factory = file.callee(made) if made is not None else None
    return [u for u in file.units if u.parent is factory] if factory is not None else []


def hooked_values(unit: Unit, event: Event) -> list[str]:
    """The parameters of a hook that tensors come in through."""
    # A closure's `self_name` is that of the method around, which is no parameter of its own.
    parameters = [p for p in unit.parameters if p != unit.self_name() or unit.owner is None]
    if event.call.func.__class__ is ast.Attribute and terminal(event.node) in ON_TENSORS:
        return parameters[-1:]
    # `(module, inputs, output)` without the module; a pre-hook has no output.
    return parameters[-2:] if len(parameters) > 2 else parameters[1:]


def lambda_stores(event: Event) -> list[tuple[Event, list[str]]]:
    """Calls within a hook that is a lambda, each with the lambda's parameters that tensors come in through."""
    hook = hook_of(event)
    if not isinstance(hook, ast.Lambda):
        return []
    parameters = [p.arg for p in hook.args.args]
    names = parameters[-1:] if terminal(event.node) in ON_TENSORS else parameters[1:]
    inside = (e for e in event.unit.events if any(branch is hook for branch, _ in e.context.arms))
    return [(e, names) for e in inside if isinstance(e.node, ast.Call)]


def base_of(node: ast.expr | None) -> ast.Name | None:
    """The variable that attributes and items are taken of: `layer` of `layer.convs[0]`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def on_lasting_module(file: SourceFile, event: Event, loop: Loop) -> bool:
    """Whether a hook's object is there before a loop around the registration: a module, or a parameter of one."""
    on = receiver(event.call)
    return on is not None and is_lasting(file, on, event.unit, loop, terminal(event.node) in ON_MODULES)


def is_lasting(file: SourceFile, on: ast.expr, unit: Unit, loop: Loop, whole: bool) -> bool:
    """Whether an expression is a module, or with `whole` False a part of one, that a loop does not make anew."""
    root = base_of(on)
    if root is None:
        return False
    for binding in unit.bindings.get(root.id, ()):
        # Made within the loop it dies with its pass, unless it is one of a model's members.
        if binding.inside(loop):
            return _walks_members(file, binding, loop)
    is_module = file.roles.is_a("module", root, unit) or file.roles.is_a("module", on, unit)
    # A hook on a tensor that is itself a variable is one of a passing tensor.
    return is_module and (whole or on is not root)


def _walks_members(file: SourceFile, binding: Event, loop: Loop) -> bool:
    """`for layer in model.modules()` within the loop: the same modules in each round."""
    node = binding.node
    if not isinstance(node, ast.For) or binding.loop is loop or not isinstance(node.iter, ast.Call):
        return False
    whose = receiver(node.iter)
    return terminal(node.iter) in _MEMBERS and whose is not None and file.roles.is_a("module", whose, binding.unit)
