"""Losses under mixed precision: which stay half where their input is half, and which bring it back to float32."""

from __future__ import annotations

import ast

from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source import model
from torchvet.source.model import origins

STAYS_HALF = model.name_set("cross_entropy CrossEntropyLoss multi_margin_loss MultiMarginLoss")
"""Losses against class indices. Against a float32 target the result is promoted to float32."""
_LAYOUT = model.name_set("view reshape flatten squeeze unsqueeze transpose permute contiguous t")
_PARTS = _LAYOUT | model.name_set("chunk split unbind")
_CAST = model.name_set("Linear Bilinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d")
"""Layers that autocast runs in half precision on every device."""
_FULL = ("float(", "float32", "log_softmax", "LogSoftmax", "softmax", "Softmax", "double(")
"""What in a `forward` says that its output may be float32 after all."""


def stays_half(event: model.Event) -> bool:
    """Whether a call computes a loss in half precision outside autocast where its first argument is half."""
    file, call = event.unit.file, event.call
    if file.dotted(call.func).startswith("torch."):
        return model.terminal(call) in STAYS_HALF
    known = file.roles.class_of(call.func, event.unit)
    own = file.callee(event) if known is None else None
    if known is not None and "module" in file.roles.of_class(known):
        own = known.method("forward")
    if own is not None:
        return _hands_on(own)
    made = makers(call.func, event)
    return bool(made) and all(isinstance(m, ast.Call) and model.terminal(m) in STAYS_HALF for m in made)


def _hands_on(unit: model.Unit) -> bool:
    """Whether a loss of this file gives what it gets first, as it is, to one that stays half: its result is as half."""
    file, given = unit.file, [p for p in unit.parameters if p != unit.self_name()]
    if not given or given[0] in unit.bindings or _mentions(unit, *_FULL, "autocast", ".to(", ".type("):
        return False
    calls = [e for name in STAYS_HALF for e in unit.calls.get(name, ()) if e.call.args]
    return any(rooted(e.call.args[0]) == given[0] and file.dotted(e.call.func).startswith("torch.") for e in calls)


def _mentions(unit: model.Unit, *words: str) -> bool:
    text = unit.file.text_of(unit)
    return any(word in text for word in words)


def makers(node: ast.expr, event: model.Event) -> list[ast.expr]:
    """What made the value of an expression, over attributes and parameters; a parameter does not stand for itself."""
    parameters = event.unit.parameters
    made = [value for value, _ in origins.made_by(node, event.unit)]
    return [m for m in made if not (isinstance(m, ast.Name) and m.id in parameters)]


def rooted(node: ast.expr) -> str:
    """The name that an expression is only another layout or part of: `out` of `out.view(-1, n)`, `out.logits`."""
    inner = model.under_methods(node, _LAYOUT)
    if isinstance(inner, ast.Subscript) or model.is_attribute(inner, "logits", "T"):
        return rooted(inner.value)
    return inner.id if isinstance(inner, ast.Name) else ""


def half_output(binding: model.Event, name: str) -> model.Event | None:
    """The call of a module, within an active region, whose half output a binding gives to a name."""
    value, unit = model.value_bound(binding.node, name), binding.unit
    event = unit.call_of(value)
    if event is None or not autocast.is_module_call(event) or region_of(event) is None:
        return None
    known = unit.file.roles.class_of(event.call.func, unit)
    return None if known is not None and _may_be_full(known) else event


def layer_output(binding: model.Event, name: str) -> ast.Call | None:
    """The call of one of torch's layers, kept on `self`, whose output a binding gives to a name, in parts or another
    layout."""
    node, file = binding.node, binding.unit.file
    if not isinstance(node, ast.Assign) or not any(model.is_name(t, name) for t in model.targets_of(node)):
        return None
    value = model.under_methods(node.value, _PARTS)
    if not isinstance(value, ast.Call) or model.terminal(value) in _PARTS:
        return None
    made = (m for m, _ in file.roles.values(value.func, binding.unit) if isinstance(m, ast.Call))
    layers = [file.dotted(m.func).rpartition(".") for m in made]
    half = layers and all(f"{home}.".startswith("torch.nn.") and layer in _CAST for home, _, layer in layers)
    return value if half else None


def region_of(call: model.Event) -> autocast.Region | None:
    """The active region that a module's call runs in, or that the module's own `forward` opens."""
    return autocast.active(call) or autocast.of_forward(call.unit.file.roles.class_of(call.call.func, call.unit))


def _may_be_full(known: model.ClassModel) -> bool:
    """Whether a module of this file seems to give float32 out, whatever autocast does."""
    forward, opens = known.method("forward"), autocast.of_forward(known) is not None
    return forward is None or _mentions(forward, *_FULL) or (not opens and _mentions(forward, "autocast"))
