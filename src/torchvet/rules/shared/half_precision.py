"""Which expressions are half precision by what the text says: `.half()`, `.to(torch.bfloat16)`, `dtype=torch.float16`.

What autocast makes of an operator is not asked here: it differs from device to device.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from torchvet.rules.kit import SourceFile
from torchvet.rules.shared import autocast_regions
from torchvet.rules.shared.autocast_regions import DTYPES as DTYPES
from torchvet.rules.shared.autocast_regions import named as named
from torchvet.source import model

_HALF = re.compile(r"\.half\b")
NAMES = {"fp16": "float16", "bf16": "bfloat16"}
WORDS = (".half", "float16")
"""A file with neither has nothing in half precision that the text shows; `bfloat16` holds the second."""
_KEEPS = model.name_set(
    "mean sum view reshape squeeze unsqueeze transpose permute t contiguous clone detach cuda cpu log exp sqrt rsqrt "
    "pow abs clamp clamp_min softmax log_softmax sigmoid tanh relu flatten expand repeat norm std var square neg "
    "requires_grad_ prod cumsum amax amin fill_ zero_ normal_ uniform_ new_zeros new_ones chunk masked_fill tril triu "
    "pin_memory unbind add_ mul_ sub_ div_"
)
"""Methods whose result has the dtype of what they are called on, given numbers."""
_SAME = model.name_set(
    "softmax exp log sqrt rsqrt sigmoid tanh relu abs sum mean square normalize matmul bmm mm norm zeros_like "
    "ones_like empty_like randn_like rand_like full_like clone neg"
)
"""Functions of torch whose result has the dtype of their tensors."""
_FACTORIES = model.name_set(
    "zeros ones empty full rand randn arange linspace eye tensor as_tensor logspace zeros_like ones_like full_like "
    "empty_like randn_like rand_like"
)
_DEEPEST = 7


def names_fp16(file: SourceFile) -> bool:
    """Whether a file mentions what one that makes a float16 tensor by itself mentions."""
    text = file.text
    # Each `bfloat16` has a `float16` in it.
    return text.count("float16") > text.count("bfloat16") or bool(file.mentions(".half") and _HALF.search(text))


_CONVERSIONS = dict.fromkeys(("float", "double", "type_as", "to_dense", "view_as", "long", "int", "bool"), "") | {
    "half": "fp16",
    "bfloat16": "bf16",
}
"""Methods that convert to the dtype that their name says."""


def converts(file: SourceFile, call: ast.Call, unit: model.Unit) -> str | None:
    """The half dtype that a call turns its receiver into; empty for another dtype; None where it converts nothing."""
    name = model.terminal(call)
    if model.receiver(call) is None:
        return None
    # `.type_as(x)` and the like convert to what is not known: the empty text.
    if name not in ("to", "type"):
        return _CONVERSIONS.get(name)
    given = model.keyword(call, "dtype")
    found = [named(file, one, unit) for one in ([given] if given is not None else call.args)]
    if any(found):
        return next(f for f in found if f)
    # `.to(device)` converts nothing; `.to(other)` may convert to anything.
    plain = [a for a in call.args if not _is_device(a)] if given is None else [given]
    return "" if plain else None


def _is_device(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, int)):
        return True
    return "device" in model.terminal(node).lower() or model.terminal(node) in ("dev", "rank", "gpu", "local_rank")


def kind(node: ast.AST | None, event: model.Event, depth: int = 0) -> str:
    """The half dtype that an expression surely has as it stands at an event; empty where it has another, or none."""
    if node is None or depth > _DEEPEST:
        return ""
    if isinstance(node, ast.Call):
        return _of_call(node, event, depth)
    if isinstance(node, ast.Name):
        return _of_name(node.id, event, depth)
    if isinstance(node, (ast.UnaryOp, ast.Subscript)):
        return kind(node.operand if isinstance(node, ast.UnaryOp) else node.value, event, depth + 1)
    if isinstance(node, ast.BinOp):
        return _joined([node.left, node.right], event, depth)
    if isinstance(node, ast.Attribute):
        return _of_attribute(node, event, depth)
    return ""


def _of_call(node: ast.Call, event: model.Event, depth: int) -> str:
    file, unit = event.unit.file, event.unit
    converted = converts(file, node, unit)
    if converted is not None:
        return converted
    dotted, name = file.dotted(node.func), model.terminal(node)
    given = model.keyword(node, "dtype")
    if dotted.startswith("torch."):
        if given is not None:
            return named(file, given, unit) if name in _FACTORIES | _SAME else ""
        return _joined(list(node.args), event, depth) if name in _SAME and node.args else ""
    if given is not None:
        return ""
    on = model.receiver(node)
    if on is not None and (name in _KEEPS or name in ("to", "type")):
        return _joined([on, *node.args], event, depth)
    return _called(node, event) if "module" in file.roles.of(node.func, unit) else ""


def _called(node: ast.Call, event: model.Event) -> str:
    """What a module gives whose weights are half and whose `forward` brings nothing back to float32."""
    known = event.unit.file.roles.class_of(node.func, event.unit)
    # By text: `.float()`, `torch.float32` and autocast's arguments all have the word.
    if known is not None and "float" in known.file.text_of(known):
        return ""
    return of_module(node.func, event)


def _joined(parts: list[ast.expr], event: model.Event, depth: int) -> str:
    """The dtype of an operation on tensors and numbers: half where every tensor is that half."""
    kinds = {kind(p, event, depth + 1) for p in parts if not _is_number(p)}
    # Half with float32 gives float32; two different halves raise or give float32.
    return kinds.pop() if len(kinds) == 1 else ""


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    if isinstance(node, (ast.Tuple, ast.List)):
        return all(map(_is_number, node.elts))
    return isinstance(node, ast.Constant)


def latest(name: str, event: model.Event) -> model.Event | None:
    """The one binding of a name that an event surely sees; additions in place are looked through."""
    before = event.bindings_before(name)
    # `x += y` keeps `x`'s dtype.
    while before and isinstance(before[-1].node, ast.AugAssign):
        before.pop()
    return before[-1] if before and event.sure_after(before[-1]) else None


def _of_name(name: str, event: model.Event, depth: int) -> str:
    home = event.unit.home(name)
    if home is not event.unit:
        bound = home.bindings.get(name, ()) if home is not None and name not in home.parameters else ()
        # Of another unit's variable no order is known: it must be bound once.
        return _of_binding(bound[0], name, depth) if len(bound) == 1 else ""
    binding = latest(name, event)
    return _of_binding(binding, name, depth) if binding is not None else ""


def _of_binding(binding: model.Event, name: str, depth: int) -> str:
    value = model.value_bound(binding.node, name)
    return kind(value, binding, depth + 1) if value is not None else ""


def _of_attribute(node: ast.Attribute, event: model.Event, depth: int) -> str:
    owner = event.unit.method_class()
    if owner is None or model.terminal(node.value) != event.unit.self_name():
        return ""
    values = owner.attributes.get(node.attr, [])
    kinds = {kind(v, e, depth + 1) for e, v in values if not isinstance(e.node, ast.AugAssign)}
    kinds |= {kind(v, e, depth + 1) for v, e in buffers(owner, node.attr)}
    return kinds.pop() if len(kinds) == 1 else ""


def buffers(owner: model.ClassModel, name: str) -> list[tuple[ast.expr, model.Event]]:
    """What `self.register_buffer(name, …)` registers."""
    found = []
    for one in owner.lineage:
        for method in one.methods.values():
            for event in method.calls.get("register_buffer", ()):
                args = event.call.args
                if len(args) > 1 and isinstance(args[0], ast.Constant) and args[0].value == name:
                    found.append((args[1], event))
    return found


# Modules -------------------------------------------------------------------------------------------------------------


def of_module(node: ast.expr, event: model.Event, depth: int = 0) -> str:
    """The half dtype that a module's weights surely have at an event: by what made it, or `model.half()` before it."""
    file, unit = event.unit.file, event.unit
    converted = _converted_before(node, event)
    if converted is not None:
        return converted
    values = file.roles.values(node, unit)
    kinds = {_made(file, v, where, depth) for v, where in values}
    found = kinds.pop() if len(kinds) == 1 else ""
    # Parts of a module are converted with it.
    return found or _of_part(node, event)


def _converted_before(node: ast.expr, event: model.Event) -> str | None:
    """What the last of the conversions before an event has made of a module; None where there is none."""
    unit, text = event.unit, ast.unparse(node)
    calls = [e for name in ("half", "bfloat16", "to", "float", "double") for e in unit.calls.get(name, ())]
    own = [e for e in calls if (on := model.receiver(e.call)) is not None and ast.unparse(on) == text]
    before = sorted((e for e in own if e.index < event.index and event.sure_after(e)), key=lambda e: -e.index)
    made = (converts(unit.file, one.call, unit) for one in before)
    return next((kind for kind in made if kind is not None), None)


def _of_part(node: ast.expr, event: model.Event) -> str:
    """The half dtype of `model.head` or `model.get_input_embeddings()`: what the whole has, but for `self`."""
    if isinstance(node, ast.Call) and not node.args and model.terminal(node).startswith("get_"):
        whole = model.receiver(node)
    else:
        whole = node.value if isinstance(node, ast.Attribute) else None
    if not isinstance(whole, ast.Name) or whole.id == event.unit.self_name():
        return ""
    text = ast.unparse(node)
    # `model.head = nn.Linear(...)` puts a float32 one in.
    replaced = any(ast.unparse(t) == text for e in event.unit.events for t in model.targets_of(e.node))
    return "" if replaced else of_module(whole, event)


def _made(file: SourceFile, value: ast.expr, unit: model.Unit, depth: int) -> str:
    """The half dtype of `Net().to(device).half()`."""
    while isinstance(value, ast.Call):
        converted = converts(file, value, unit)
        if converted is not None:
            return converted
        dtype = next((k.value for k in value.keywords if k.arg in ("dtype", "torch_dtype")), None)
        if dtype is not None:
            return named(file, dtype, unit)
        on = model.receiver(value)
        if on is None:
            return _returned(file, value, unit, depth + 1)
        value = on
    return ""


def _returned(file: SourceFile, call: ast.Call, unit: model.Unit, depth: int) -> str:
    """The half dtype of the module that a function of this file returns."""
    if depth > 2:
        return ""
    event = unit.call_of(call)
    callee = file.callee(event) if event is not None else None
    returned = [e for e in callee.events if isinstance(e.node, ast.Return)] if callee is not None else []
    kinds = {_of_returned(file, one, depth) for one in returned}
    return kinds.pop() if len(kinds) == 1 else ""


def _of_returned(file: SourceFile, event: model.Event, depth: int) -> str:
    value = getattr(event.node, "value", None)
    if isinstance(value, ast.Call):
        return _made(file, value, event.unit, depth)
    return of_module(value, event, depth) if isinstance(value, (ast.Name, ast.Attribute)) else ""


@lru_cache(maxsize=1)
def half_classes(file: SourceFile) -> dict[str, str]:
    """Modules of a file that are converted to half as a whole in it, themselves or as a part of one that is."""
    found: dict[str, str] = {}
    if not file.mentions(*WORDS):
        return found
    for event in file.calls("half", "bfloat16", "to"):
        converted = converts(file, event.call, event.unit)
        on = model.receiver(event.call)
        known = _class_of(file, on, event.unit) if converted and on is not None else None
        if known is not None and converted:
            spread(known, converted, found)
    return found


def _class_of(file: SourceFile, node: ast.expr, unit: model.Unit) -> model.ClassModel | None:
    while isinstance(node, ast.Call):
        known = file.roles.class_named(node.func, unit)
        if known is not None:
            return known
        on = model.receiver(node)
        if on is None:
            return None
        node = on
    # `self.half()` within a class says nothing of when it is called.
    return None if model.terminal(node) == "self" else file.roles.class_of(node, unit)


def run_under_autocast(file: SourceFile, dtype: str = "") -> dict[str, str]:
    """Modules of a file, with their parts, that it calls in active regions (of a dtype), and whether those are on:
    "yes", or "unknown" where a switch decides or the call is only named after the class (`encoder(x)`)."""
    found: dict[str, str] = {}
    named: dict[str, str] = {}
    for region, at, _ in autocast_regions.opened(file):
        if region.enabled == "no" or region.framework or dtype not in ("", region.dtype):
            continue
        for call in [c for c in autocast_regions.inside(at.unit, region) if isinstance(c.node, ast.Call)]:
            known = file.roles.class_of(call.call.func, at.unit)
            if known is not None:
                spread(known, region.enabled, found)
            elif (alike := _named_like(file, call)) is not None:
                spread(alike, "unknown", named)
    return {**named, **found}


def _named_like(file: SourceFile, call: model.Event) -> model.ClassModel | None:
    name = model.terminal(call.node).replace("_", "").lower()
    # `text_encoder(x)` for `TextEncoder`; `TextEncoder(x)` would make one.
    found = [c for c in file.classes.values() if c.name.lower() == name and c.name != model.terminal(call.node)]
    return found[0] if len(found) == 1 and "module" in file.roles.of_class(found[0]) else None


def spread(known: model.ClassModel, dtype: str, found: dict[str, str]) -> None:
    """Note a class and the classes of this file that its methods make."""
    if known.name in found:
        return
    found[known.name] = dtype
    for one in known.lineage:
        for method in one.methods.values():
            for name in method.calls:
                part = known.file.classes.get(name)
                if part is not None and "module" in known.file.roles.of_class(part):
                    spread(part, dtype, found)
