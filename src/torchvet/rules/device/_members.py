"""What shows that the members of a plain container are modules: what made them, what callers give, their uses."""

from __future__ import annotations

import ast
import re

from torchvet.rules.device import _modules
from torchvet.rules.kit import SourceFile
from torchvet.source.model import ClassModel, Event, Unit, is_call, name_set, names_in, root_of, targets_of, value_bound
from torchvet.source.syntax import receiver, terminal
from torchvet.source.walking import walk

_STATELESS_PACKAGES = tuple(
    name_set("""
    torchvision.transforms torchvision.datasets torchvision.ops torchaudio.transforms torchmetrics albumentations
    kornia.augmentation transformers collections functools numpy torch.
""")
)
"""Packages whose classes are no layers, or are known by what torch says of them."""
_OF_MODULES = name_set(
    "parameters named_parameters state_dict load_state_dict zero_grad requires_grad_ children named_children modules"
)
"""Methods of modules that a transform, a metric or a function has not."""
_PLAIN = ("list", "tuple")
_LISTED = re.compile(
    r"""['"]?(?:Optional\[)?(?:typing\.|t\.)?(List|Sequence|Iterable|Tuple|Dict|Mapping|list|tuple|dict)\["""
)
_NO_LAYERS = re.compile(r"\b(Callable|Tensor|object|int|float|bool|ndarray|Any)\b|Union|str\]|\|")
"""What an annotation names that members of a list may be instead of layers."""


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


def parameter_held(unit: Unit, value: ast.expr) -> tuple[str, str]:
    """The parameter whose members a plain container has, and of which kind that is: `*layers`, `list(layers)`, clones
    of one, what is annotated as a list or asked whether it is one. Empty where it may be a container of modules."""
    held: ast.expr | None = value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in _PLAIN:
        held = value.args[0] if len(value.args) == 1 else None
    elif isinstance(value, ast.ListComp):
        held = value.elt.args[0] if is_call(value.elt, "deepcopy") and value.elt.args else None
    if not isinstance(held, ast.Name) or not _is_parameter(unit, held.id):
        return "", ""
    return held.id, kind_given(unit, held.id) if held is value else "list"


def _is_parameter(unit: Unit, name: str) -> bool:
    """Whether a name is a parameter that is bound anew to nothing but a list of it."""
    bound = [value_bound(event.node, name) for event in unit.bindings.get(name, ())]
    return name in unit.given_parameters and all(
        isinstance(v, (ast.List, ast.BinOp)) and name in names_in(v) for v in bound
    )


def kind_given(unit: Unit, name: str) -> str:
    """What a parameter's star, annotation, or a question in the function, says of it: `list`, `dict`, or nothing."""
    if name == starred(unit):
        return "list"
    annotated = unit.annotation(name)
    text = ast.unparse(annotated) if isinstance(annotated, (ast.Subscript, ast.Constant)) else ""
    found = _LISTED.match(text)
    if found is not None and not _NO_LAYERS.search(text):
        return "dict" if found[1].lower() in ("dict", "mapping") else "list"
    asked = f"isinstance({name}, list)" in unit.file.text_of(unit)
    return "list" if asked and annotated is None else ""


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


def made_elsewhere(file: SourceFile, model: ClassModel, call: ast.expr | None) -> bool:
    """Whether a call may make an instance of a class that another file of the program defines, or that has its base
    there. A function is asked only if it is from the package that the module's class itself is built on."""
    if not isinstance(call, ast.Call):
        return False
    known = file.roles.class_named(call.func)
    if known is not None:
        return file.roles.of_class(known) == {"object"} and not all(base in file.classes for base in known.ancestors)
    dotted, last = file.dotted(call.func), terminal(call)
    if root_of(call.func) not in file.imports.names or dotted.startswith(_STATELESS_PACKAGES):
        return False
    package = dotted.partition(".")[0]
    return last[:1].isupper() or any(base.partition(".")[0] == package and "." in base for base in model.ancestors)


def value_of(unit: Unit, name: str) -> ast.expr | None:
    """What a local name is bound to: the first of several values where all call the same."""
    values = [v for v in (value_bound(event.node, name) for event in unit.bindings.get(name, ())) if v is not None]
    called = {ast.unparse(v.func) if isinstance(v, ast.Call) else "" for v in values}
    return values[0] if len(values) > 1 and len(called) == 1 and "" not in called else None


def are_called(model: ClassModel, name: str, surely: bool) -> bool:
    """Whether `forward`, or any method of what is surely a module, computes with what an attribute's container has."""
    units = _modules.methods(model, name)
    return any(_calls_members(u, name) for u in units if (u.name != "__init__" if surely else u.name == "forward"))


def are_used(model: ClassModel, name: str, surely: bool) -> bool:
    """Whether methods call the members of an attribute's container, or do to them what only modules let be done."""
    asked = any(_asks_members(unit, name) for unit in _modules.methods(model, name))
    return asked or are_called(model, name, surely)


def are_of_its_base(unit: Unit, model: ClassModel, parameter: str) -> bool:
    """Whether a parameter is annotated as a list of what its class is, too: an ensemble."""
    annotated = unit.annotation(parameter)
    inner = annotated.slice if isinstance(annotated, ast.Subscript) else None
    return isinstance(inner, (ast.Name, ast.Attribute)) and model.file.dotted(inner) in model.ancestors


def _asks_members(unit: Unit, name: str) -> bool:
    own, members = unit.self_name(), _member_names(unit, name)
    asked = [receiver(n) for n in walk(unit.node) if isinstance(n, ast.Call) and terminal(n) in _OF_MODULES]
    return any(terminal(on) in members or _is_member(on, name, own) for on in asked)


def _calls_members(unit: Unit, name: str) -> bool:
    own, members = unit.self_name(), _member_names(unit, name)
    # What is only called, as a metric is, computes nothing here.
    alone = {id(n.value) for n in walk(unit.node) if isinstance(n, ast.Expr)}
    for call in (n for n in walk(unit.node) if isinstance(n, ast.Call) and (n.args or n.keywords)):
        func = call.func if id(call) not in alone else None
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
        if isinstance(node, (ast.For, ast.comprehension)):
            found |= _looped(node.target, node.iter, name, own)
        elif isinstance(node, ast.Assign) and _is_member(node.value, name, own):
            found |= {t.id for t in targets_of(node) if isinstance(t, ast.Name)}
        elif is_call(node, "map") and node.args and isinstance(node.args[0], ast.Lambda):
            lambdas = zip(node.args[0].args.args, node.args[1:], strict=False)
            found |= {a.arg for a, given in lambdas if _holds(given, name, own)}
    return found


def _looped(target: ast.expr, over: ast.expr, name: str, own: str) -> set[str]:
    """The variables of a loop that stand for members; what `zip` and `enumerate` go through is taken by its place."""
    elements = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
    if is_call(over, "enumerate") and len(elements) == 2 and over.args:
        return _looped(elements[1], over.args[0], name, own)
    if is_call(over, "zip") and len(elements) == len(over.args):
        return {n for one, given in zip(elements, over.args, strict=True) for n in _looped(one, given, name, own)}
    return names_in(target) if _holds(over, name, own) else set()


def _holds(node: ast.expr, name: str, own: str) -> bool:
    return any(_is_attribute(one, name, own) for one in walk(node))
