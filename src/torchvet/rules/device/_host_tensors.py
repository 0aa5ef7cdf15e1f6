"""What a constructor keeps that is a tensor on the host, by way of branches, names and functions of the file."""

from __future__ import annotations

import ast
import re
from typing import Literal

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.source import model
from torchvet.source.model import torch_names

Kind = Literal["sure", "maybe", ""]
"""A tensor with dimensions, surely or if what a caller gives has some; empty where it may be none."""
_DEEPEST = 4
_SIZED = model.name_set("zeros ones empty full rand randn arange linspace eye from_numpy logspace randint randperm")
_CONVERTING = model.name_set("tensor as_tensor")
_TYPED = model.name_set("Tensor FloatTensor LongTensor DoubleTensor IntTensor BoolTensor")
_RANDOM = model.name_set("rand randn randint randperm bernoulli multinomial")
_STAYING = torch_names.TENSOR_METHODS - {"to", "cuda", "cpu", "type_as", "numpy", "tolist", "item", "size"} | {
    "type",
    "fill_",
}
_ELEMENTWISE = model.name_set("exp log sqrt cumsum cumprod tril triu flip sort outer")
_DRAWS = re.compile(r"\btorch\.(?:" + "|".join(sorted(_RANDOM)) + r")\(")
_SAVES = re.compile(r"manual_seed|fork_rng|def (?:state_dict|get_extra_state|_save_to_state_dict|__getstate__)\b")
_ASKS = re.compile(r"self\.\w+ = (?:self\.)?(\w+)\(")
_REGISTERS = re.compile(r"register_|setattr|Parameter\(|Buffer\(")
_MADE = re.compile(r"\b(?:" + "|".join(sorted(_SIZED | _CONVERTING | _TYPED)) + r")\(")
_LISTED = re.compile(r"\b(List|Sequence|Tuple|Iterable|list|tuple|ndarray)\b")
_MOVES = re.compile(r"\.(?:to|cuda|type_as|new_tensor)\(|device|setattr|register_|Parameter\(|Buffer\(")


def kept(file: SourceFile, owner: model.ClassModel) -> Iterator[tuple[model.Event, ast.Attribute, Kind]]:
    """What a constructor binds an attribute to that is a tensor on the host, and that nothing in the class moves."""
    init = owner.methods.get("__init__")
    if init is None or init.owner is not owner or file.devices.default_changed or not _makes(file, init):
        return
    lines = file.text_of(owner).split("\n")
    for event, target in own_bindings(init):
        kind = host_tensor(file, model.value_for(event.node, target), event)
        moved = kind and any(target.attr in line and _MOVES.search(line) for line in lines)
        if kind and not moved and _bound_apart(file, owner, target.attr, init):
            yield event, target, kind


def _makes(file: SourceFile, init: model.Unit) -> bool:
    """Whether a constructor's lines have a factory, or bind an attribute to what a function of the file gives."""
    text = file.text_of(init)
    return _MADE.search(text) is not None or any(file.functions(m[1]) for m in _ASKS.finditer(text))


def own_bindings(init: model.Unit) -> Iterator[tuple[model.Event, ast.Attribute]]:
    """Assignments of a constructor to attributes of its object."""
    own = init.self_name()
    for event in init.events:
        for target in model.targets_of(event.node) if isinstance(event.node, ast.Assign) else ():
            if isinstance(target, ast.Attribute) and model.terminal(target.value) == own:
                yield event, target


def _bound_apart(file: SourceFile, owner: model.ClassModel, name: str, init: model.Unit) -> bool:
    """Whether an attribute is bound in its constructor alone, once or in branches of which one is taken, and to tensors
    in all of them."""
    bound = owner.attributes.get(name, ())
    apart = all(a.excludes(b) for i, (a, _) in enumerate(bound) for b, _ in bound[i + 1 :])
    tensors = (host_tensor(file, value, event) or _is_converted(value, init) for event, value in bound)
    return apart and all(event.unit is init for event, _ in bound) and all(tensors)


def _is_converted(value: ast.expr | None, init: model.Unit) -> bool:
    """A parameter that a tensor's method is called on."""
    on = model.receiver(value) if isinstance(value, ast.Call) and model.terminal(value) in _STAYING else None
    return isinstance(on, ast.Name) and on.id in init.parameters


def host_tensor(file: SourceFile, value: ast.expr | None, event: model.Event, depth: int = 0) -> Kind:
    """Whether an expression gives a tensor with dimensions that was made on the host."""
    if value is None or depth > _DEEPEST:
        return ""
    if isinstance(value, ast.Name):
        return _of_name(file, value.id, event, depth)
    if isinstance(value, ast.BinOp):
        sides = [host_tensor(file, v, event, depth + 1) for v in (value.left, value.right)]
        numbers = [isinstance(v, ast.Constant) for v in (value.left, value.right)]
        return max(sides, key=len) if all(k or n for k, n in zip(sides, numbers, strict=True)) else ""
    if isinstance(value, ast.Subscript):
        # An index may take the last dimension.
        return "maybe" if host_tensor(file, value.value, event, depth + 1) else ""
    return _of_call(file, value, event, depth) if isinstance(value, ast.Call) else ""


def _of_call(file: SourceFile, call: ast.Call, event: model.Event, depth: int) -> Kind:
    dotted, on = file.dotted(call.func), model.receiver(call)
    if dotted.startswith("torch.") and dotted.count(".") == 1:
        return _of_torch(file, call, event, depth)
    if on is not None and model.terminal(call) in _STAYING:
        return host_tensor(file, on, event, depth + 1)
    made = file.callee(event.unit.call_of(call) or event) if event.unit.call_of(call) is not None else None
    kinds = {host_tensor(file, v, e, depth + 1) for v, e in made.returned} if made is not None else {""}
    return "" if not kinds or "" in kinds else "maybe" if "maybe" in kinds else "sure"


def _of_torch(file: SourceFile, call: ast.Call, event: model.Event, depth: int) -> Kind:
    last = model.terminal(call)
    if not call.args or any(k.arg in ("device", None) for k in call.keywords):
        return ""
    if last in _SIZED or last in _TYPED:
        return "sure"
    if last in _CONVERTING:
        return "sure" if isinstance(call.args[0], (ast.List, ast.ListComp)) else _of_given(call, event.unit)
    return host_tensor(file, call.args[0], event, depth + 1) if last in _ELEMENTWISE else ""


def _of_given(call: ast.Call, unit: model.Unit) -> Kind:
    """What is converted may be a number, whose tensor goes with every device: an annotation or an integer type, which
    indices have, says that it is a list."""
    given = call.args[0]
    if not isinstance(given, ast.Name) or given.id not in unit.parameters:
        return ""
    annotated = unit.annotation(given.id)
    listed = annotated is not None and _LISTED.search(ast.unparse(annotated)) is not None
    return (
        "maybe" if listed or model.terminal(model.keyword(call, "dtype")) in ("long", "int64", "int32", "int") else ""
    )


def _of_name(file: SourceFile, name: str, event: model.Event, depth: int) -> Kind:
    """Of a local name: all that it may be bound to. A parameter that some branch makes a tensor of counts as given."""
    unit = event.unit
    if unit.home(name) is not unit:
        return ""
    bound = [e for e in unit.bindings.get(name, ()) if e.index < event.index and not e.excludes(event)]
    kinds = {host_tensor(file, model.value_bound(e.node, name), e, depth + 1) for e in bound}
    if not bound or "" in kinds:
        return ""
    return "maybe" if "maybe" in kinds or name in unit.parameters else "sure"


def drawn(file: SourceFile, owner: model.ClassModel) -> Iterator[tuple[model.Event, ast.Attribute]]:
    """What a constructor draws at random into an attribute that other methods read, where nothing seeds, registers or
    saves it."""
    init, text = owner.methods.get("__init__"), file.text_of(owner)
    if init is None or init.owner is not owner or not _DRAWS.search(text) or _SAVES.search(text):
        return
    for event, target in own_bindings(init):
        value = model.value_for(event.node, target)
        if value is None or not _is_random(file, value) or not _read_later(owner, target.attr):
            continue
        apart = all(e.unit is init for e, _ in owner.attributes.get(target.attr, ()))
        if apart and not any(target.attr in line and _REGISTERS.search(line) for line in text.split("\n")):
            yield event, target


def _read_later(owner: model.ClassModel, name: str) -> bool:
    """Whether a method other than the constructor reads an attribute."""
    units = (unit for unit in owner.methods.values() if unit.name != "__init__")
    return any(re.search(rf"\b{unit.self_name()}\.{name}\b", owner.file.text_of(unit)) for unit in units)


def _is_random(file: SourceFile, value: ast.expr) -> bool:
    """Whether a value is what torch draws, seen through moves and conversions, without a generator."""
    node: ast.expr | None = value
    while isinstance(node, ast.Call):
        if file.dotted(node.func).rpartition(".")[0] == "torch" and model.terminal(node) in _RANDOM:
            return model.keyword(node, "generator") is None
        node = model.receiver(node)
    return False


def moved_by_hand(owner: model.ClassModel) -> Iterator[tuple[model.Event, ast.Attribute]]:
    """Attributes that a constructor binds and that `_apply` of the class hands to its function itself."""
    init, applying = owner.methods.get("__init__"), owner.methods.get("_apply")
    if init is None or applying is None or len(applying.parameters) < 2:
        return
    own, function = applying.self_name(), applying.parameters[1]
    for event, target in own_bindings(init):
        if f"{own}.{target.attr} = {function}({own}.{target.attr})" in owner.file.text_of(applying):
            yield event, target
