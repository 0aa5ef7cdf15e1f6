"""What is surely a tensor: by what made it, by its annotation, or by what else is done to it."""

from __future__ import annotations

import ast

from torchvet.rules.kit import SourceFile
from torchvet.source.model import Event, Unit, is_call, is_name, name_set, receiver, terminal, torch_names, value_bound

_TENSOR_ONLY = name_set(
    "unsqueeze view size numel contiguous permute transpose squeeze flatten expand backward argmax softmax detach eq "
    "view_as sum mean long dim"
)
"""Methods that a tensor has, and that modules, batch encodings and graphs of other libraries have not."""
_TENSOR_TYPES = ("torch.Tensor", "torch.FloatTensor", "Tensor")
_ALSO_OF_OTHERS = frozenset(("to", "cuda", "cpu", "float", "half", "double", "bfloat16", "long", "size", "sum", "mean"))


def surely_tensor(file: SourceFile, node: ast.expr, event: Event, through_calls: bool = False) -> bool:
    """Whether what an expression holds at an event can be nothing but a tensor; `through_calls` also where a function
    of the file made it."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Name) and _made_by_torch(file, node.value, event)
    found = file.roles.of(node, event.unit)
    if found & {"module", "container"}:
        return False
    if isinstance(node, ast.Attribute):
        fresh = "tensor" in found and _all_fresh(file, node, event)
    elif isinstance(node, ast.Name) and "object" not in found:
        fresh = _annotated(node.id, event) or _made_by_torch(file, node, event) or _used_as_tensor(node.id, event)
    else:
        return False
    return fresh or (through_calls and "object" not in found and _all_given_back(file, node, event))


def _all_given_back(file: SourceFile, node: ast.Name | ast.Attribute, event: Event) -> bool:
    """Whether all that a name or an attribute is bound to are tensors, as functions of the file give them back."""
    name = terminal(node)
    if isinstance(node, ast.Attribute):
        owner = event.unit.method_class() if terminal(node.value) == event.unit.self_name() else None
        bound = owner.attributes.get(name, []) if owner is not None else []
    else:
        mine = event.is_own(node) and name not in event.unit.parameters
        reaching = file.devices.reaching(name, event) if mine else []
        bound = [(binding, value_bound(binding.node, name)) for binding in reaching]
    # What moves it, `self.table = self.table.cuda()`, leaves it a tensor.
    others = [(e, v) for e, v in bound if v is None or not _is_of(v, node)]
    return bool(others) and all(_given_back(file, value, binding) for binding, value in others)


def _is_of(value: ast.expr, node: ast.expr) -> bool:
    """Whether a value is what a tensor's method gives of the same name or attribute."""
    on = receiver(value) if isinstance(value, ast.Call) and terminal(value) in torch_names.TENSOR_METHODS else None
    return on is not None and ast.dump(on).replace("Store()", "Load()") == ast.dump(node)


def _given_back(file: SourceFile, value: ast.expr | None, event: Event) -> bool:
    """Whether a value is a call of torch, or of a function of the file all of whose returns are such, that gives a
    tensor."""
    if value is None or _is_tensor_call(file, value):
        return value is not None
    call = event.unit.call_of(value)
    made = file.callee(call) if call is not None else None
    if made is None or isinstance(made.node, ast.Module):
        return False
    said = made.node.returns
    if said is not None:
        return file.dotted(said) in _TENSOR_TYPES
    return bool(made.returned) and all(_returns_tensor(file, given, e) for given, e in made.returned)


def _returns_tensor(file: SourceFile, given: ast.expr | None, event: Event) -> bool:
    if isinstance(given, ast.Name):
        return _made_by_torch(file, given, event)
    return given is not None and _is_tensor_call(file, given)


def _annotated(name: str, event: Event) -> bool:
    # Bound anew it may be anything, whatever the parameter was.
    given = event.unit.annotation(name) if name not in event.unit.bindings else None
    return given is not None and event.unit.file.dotted(given) in _TENSOR_TYPES


def _all_fresh(file: SourceFile, node: ast.expr, event: Event) -> bool:
    values = file.roles.values(node, event.unit)
    return bool(values) and all(_is_tensor_call(file, v) for v, _ in values)


def _made_by_torch(file: SourceFile, node: ast.Name, event: Event) -> bool:
    """Whether every binding that can reach here is a call of torch that gives one tensor."""
    if event.unit.home(node.id) is not event.unit:
        return False
    found = [value_bound(binding.node, node.id) for binding in file.devices.reaching(node.id, event)]
    return bool(found) and all(v is not None and _is_tensor_call(file, v) for v in found)


def _is_tensor_call(file: SourceFile, value: ast.expr) -> bool:
    while isinstance(value, ast.Call):
        dotted = file.dotted(value.func)
        made = torch_names.is_factory(dotted) or dotted in ("torch.cat", "torch.stack")
        if made or dotted.startswith("torch.nn.functional."):
            return True
        on = receiver(value)
        # These give tuples.
        # What ends in `_` changes its tensor in place and gives it back.
        gives = terminal(value) in torch_names.TENSOR_METHODS or terminal(value).strip("_") + "_" == terminal(value)
        if on is None or not gives or terminal(value) in ("chunk", "split", "unbind"):
            return False
        value = on
    return False


def _used_as_tensor(name: str, event: Event) -> bool:
    """Whether a method that only tensors have is called on a name that is bound once in its unit."""
    unit = event.unit
    bound = [e for e in unit.bindings.get(name, ()) if not _moves_itself(e.node, name)]
    # Bound twice, one of them may be no tensor.
    if unit.home(name) is not unit or len(bound) + (name in unit.parameters) != 1:
        return False
    calls = (call for method in _TENSOR_ONLY - _ALSO_OF_OTHERS for call in unit.calls.get(method, ()) if _tells(call))
    return any(is_name(receiver(one.call), name) for one in calls) or _given_to_a_loss(name, event)


def _tells(call: Event) -> bool:
    """Whether something is done with what a method gives: a call that stands alone may change its object."""
    return call.parent.__class__ is not ast.Expr or terminal(call.node) == "backward"


def _moves_itself(node: ast.AST, name: str) -> bool:
    """`x = x.to(device)`, alone or among others: it is what it was."""
    value = value_bound(node, name)
    on = receiver(value) if is_call(value, "to", "cuda", "cpu") else None
    return is_name(on, name)


def _given_to_a_loss(name: str, event: Event) -> bool:
    """Whether a loss of torch, which takes nothing but tensors, is given the name."""
    calls = (e.call for e in event.unit.events if e.node.__class__ is ast.Call)
    # Input and target; further arguments are weights and settings.
    given = (call for call in calls if any(is_name(a, name) for a in call.args[:2]))
    return any(_is_a_loss(call, event.unit) for call in given)


def _is_a_loss(call: ast.Call, unit: Unit) -> bool:
    """Whether a call is of a loss of torch: a function, or a module of `torch.nn`."""
    dotted = unit.file.dotted(call.func)
    if dotted.startswith("torch.nn.functional.") and terminal(call) in torch_names.LOSS_FUNCTIONS:
        return True
    made = [unit.file.dotted(v.func) for v, _ in unit.file.roles.values(call.func, unit) if isinstance(v, ast.Call)]
    return bool(made) and all(m.startswith("torch.nn.") and m.endswith("Loss") for m in made)
