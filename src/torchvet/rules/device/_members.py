"""What shows that the members of a plain container are modules: what made them, what callers give, how they are used."""

from __future__ import annotations

import ast

from torchvet.rules.device import _containers as containers
from torchvet.rules.device import _modules
from torchvet.rules.kit import SourceFile
from torchvet.source.model import ClassModel, Event, Unit, is_call, name_set, receiver, targets_of, terminal, walk

_STATELESS_PACKAGES = (
    "torchvision.transforms", "torchvision.datasets", "torchvision.ops", "torchaudio.transforms", "torchmetrics",
    "albumentations", "kornia.augmentation", "transformers", "collections", "numpy", "torch",
)  # fmt: skip
"""Packages whose classes are no layers, or are known by what torch says of them."""
_OF_MODULES = name_set(
    "parameters named_parameters state_dict load_state_dict zero_grad requires_grad_ children named_children modules"
)
"""Methods of modules that a transform, a metric or a function has not."""
_PLAIN = ("list", "tuple")


def classes_given(file: SourceFile, call: ast.Call, unit: Unit) -> list[ast.expr]:
    """What the callers in the file give for the parameter that a call makes an instance of: `block(…)`."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if not name or unit.home(name) is not unit or name not in unit.given_parameters or name in unit.bindings:
        return []
    return [given for given, _ in file.arguments(unit, name)]


def starred(unit: Unit) -> str:
    """What a function calls the parameters that it is given one by one: `layers` of `*layers`."""
    taken = None if isinstance(unit.node, ast.Module) else unit.node.args.vararg
    return taken.arg if taken is not None else ""


def parameter_held(unit: Unit, value: ast.expr) -> str:
    """The parameter whose members a plain container has: `*layers` itself, `list(layers)`, clones of one."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in _PLAIN:
        value = value.args[0] if len(value.args) == 1 else value
        return value.id if _is_parameter(unit, value) else ""
    if isinstance(value, ast.ListComp):
        copied = value.elt.args[0] if is_call(value.elt, "deepcopy") and value.elt.args else None
        return copied.id if copied is not None and _is_parameter(unit, copied) else ""
    return value.id if isinstance(value, ast.Name) and value.id == starred(unit) and _is_parameter(unit, value) else ""


def _is_parameter(unit: Unit, value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in unit.given_parameters and value.id not in unit.bindings


def callers_give_modules(file: SourceFile, init: Unit, name: str) -> bool:
    """Whether all calls in the file that fill `*layers` of a constructor give it nothing but modules."""
    if name != starred(init):
        return False
    first = init.given_parameters.index(name)
    given = [(one, event) for event in file.callers(init) for one in event.call.args[first:]]
    return any(_is_module(file, one, event) for one, event in given)


def _is_module(file: SourceFile, node: ast.expr, event: Event) -> bool:
    """Whether an expression is a module: `self` in a module's method, or what a call makes."""
    if isinstance(node, ast.Name) and node.id == event.unit.self_name():
        owner = event.unit.method_class()
        return owner is not None and _modules.is_module(file, owner)
    roles = file.roles.of(node, event.unit)
    return "module" in roles and "criterion" not in roles


def made_elsewhere(file: SourceFile, call: ast.expr | None) -> bool:
    """Whether a call makes an instance of a class that another file of the program defines."""
    if not isinstance(call, ast.Call):
        return False
    dotted = file.dotted(call.func)
    root, last = dotted.partition(".")[0], terminal(call)
    imported = _root(call.func) in file.imports.names
    return imported and last[:1].isupper() and not last.isupper() and not dotted.startswith(_STATELESS_PACKAGES) and root != "nn"


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def are_called(model: ClassModel, name: str) -> bool:
    """Whether a method other than the constructor calls members of an attribute's container with something."""
    return any(_calls_members(unit, name) for unit in _modules.methods(model, name) if unit.name != "__init__")


def are_used(model: ClassModel, name: str) -> bool:
    """Whether methods call the members of an attribute's container, or do to them what only modules let be done."""
    return are_called(model, name) or any(_asks_members(unit, name) for unit in _modules.methods(model, name))


def _asks_members(unit: Unit, name: str) -> bool:
    own, members = unit.self_name(), _member_names(unit, name)
    asked = [receiver(n) for n in walk(unit.node) if isinstance(n, ast.Call) and terminal(n) in _OF_MODULES]
    return any(terminal(on) in members or _is_member(on, name, own) for on in asked)


def _calls_members(unit: Unit, name: str) -> bool:
    own, members = unit.self_name(), _member_names(unit, name)
    for call in (n for n in walk(unit.node) if isinstance(n, ast.Call) and (n.args or n.keywords)):
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr == "forward":
            func = func.value
        if (isinstance(func, ast.Name) and func.id in members) or _is_member(func, name, own):
            return True
    return False


def _is_member(node: ast.AST | None, name: str, own: str) -> bool:
    """`self.NAME[i]`."""
    return isinstance(node, ast.Subscript) and _is_attribute(node.value, name, own)


def _is_attribute(node: ast.AST, name: str, own: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == name and terminal(node.value) == own


def _member_names(unit: Unit, name: str) -> set[str]:
    """Variables that stand for members of `self.NAME`: of loops over it, of `map`'s lambdas, of what is taken out."""
    own, found = unit.self_name(), set[str]()
    for node in walk(unit.node):
        if isinstance(node, (ast.For, ast.comprehension)) and _holds(node.iter, name, own):
            found |= {t.id for t in targets_of(node) if isinstance(t, ast.Name)}
        elif isinstance(node, ast.Assign) and _is_member(node.value, name, own):
            found |= {t.id for t in targets_of(node) if isinstance(t, ast.Name)}
        elif is_call(node, "map") and node.args and isinstance(node.args[0], ast.Lambda):
            if any(_holds(one, name, own) for one in node.args[1:]):
                found |= {a.arg for a in node.args[0].args.args}
    return found


def _holds(node: ast.expr, name: str, own: str) -> bool:
    return any(_is_attribute(one, name, own) for one in walk(node))
