"""Losses under mixed precision: which stay half where their input is half, and which bring it back to float32."""

from __future__ import annotations

import ast

from torchvet.rules.shared import autocast_regions
from torchvet.source.model import (
    ClassModel,
    Event,
    Unit,
    origins,
    receiver,
    targets_of,
    terminal,
    value_bound,
)

STAYS_HALF = frozenset(("cross_entropy", "CrossEntropyLoss", "multi_margin_loss", "MultiMarginLoss"))
"""Losses against class indices. Against a float32 target the result is promoted to float32."""
_LAYOUT = frozenset(("view", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "permute", "contiguous", "t"))
_CAST = frozenset(("Linear", "Bilinear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
                   "ConvTranspose3d"))  # fmt: skip
"""Layers that autocast runs in half precision on every device."""
_FULL = ("float(", "float32", "log_softmax", "LogSoftmax", "softmax", "Softmax", "double(", "autocast")
"""What in a `forward` says that its output may be float32 after all."""


def stays_half(event: Event) -> bool:
    """Whether a call computes a loss in half precision outside autocast where its first argument is half."""
    file, call = event.unit.file, event.call
    dotted = file.dotted(call.func)
    if dotted.startswith("torch."):
        return terminal(call) in STAYS_HALF
    own = _own_loss(event)
    if own is not None:
        return _hands_on(own)
    made = makers(call.func, event)
    return bool(made) and all(isinstance(m, ast.Call) and terminal(m) in STAYS_HALF for m in made)


def _own_loss(event: Event) -> Unit | None:
    """The function of this file that a call runs, or the `forward` of its module that it calls."""
    file, call = event.unit.file, event.call
    known = file.roles.class_of(call.func, event.unit)
    if known is not None:
        return known.method("forward") if "module" in file.roles.of_class(known) else None
    return file.callee(event)


def _hands_on(unit: Unit) -> bool:
    """Whether a loss of this file gives what it gets first, as it is, to one that stays half: its result is as half."""
    given = [p for p in unit.parameters if p != unit.self_name()]
    text = "\n".join(unit.file.lines[unit.first - 1 : unit.last])
    if not given or given[0] in unit.bindings or any(word in text for word in (*_FULL, ".to(", ".type(")):
        return False
    calls = [e for name in STAYS_HALF for e in unit.calls.get(name, ()) if e.call.args]
    return any(rooted(e.call.args[0]) == given[0] and unit.file.dotted(e.call.func).startswith("torch.") for e in calls)


def makers(node: ast.expr, event: Event) -> list[ast.expr]:
    """What made the value of an expression, over attributes and parameters; a parameter does not stand for itself."""
    parameters = event.unit.parameters
    made = [value for value, _ in origins.made_by(node, event.unit)]
    return [m for m in made if not (isinstance(m, ast.Name) and m.id in parameters)]


def rooted(node: ast.expr) -> str:
    """The name that an expression is only another layout or part of: `out` of `out.view(-1, n)`, `out.logits`."""
    while True:
        if isinstance(node, ast.Call) and terminal(node) in _LAYOUT and receiver(node) is not None:
            node = receiver(node)  # type: ignore[assignment]
        elif isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in ("logits", "T")):
            node = node.value
        else:
            return node.id if isinstance(node, ast.Name) else ""


def latest(event: Event, name: str) -> Event | None:
    """The binding of a name that an event sees; None where branches make that unsure."""
    before = [e for e in event.unit.bindings.get(name, ()) if e.index < event.index and not e.excludes(event)]
    return before[-1] if before and event.sure_after(before[-1]) else None


def made_by(binding: Event, name: str) -> ast.Call | None:
    """The call whose result a binding gives to a name."""
    value = value_bound(binding.node, name)
    return value if isinstance(value, ast.Call) else None


def half_output(binding: Event, name: str) -> Event | None:
    """The call of a module, within an active region, whose half output a binding gives to a name."""
    call = made_by(binding, name)
    event = next((e for e in binding.unit.calls.get(terminal(call), ()) if e.node is call), None)
    if call is None or event is None or not autocast_regions.is_module_call(event) or region_of(event) is None:
        return None
    known = binding.unit.file.roles.class_of(call.func, binding.unit)
    return None if known is not None and _may_be_full(known) else event


def layer_output(binding: Event, name: str) -> ast.Call | None:
    """The call of one of torch's layers, kept on `self`, whose output a binding gives to a name, in parts or another
    layout."""
    node = binding.node
    if not isinstance(node, ast.Assign) or not any(isinstance(t, ast.Name) and t.id == name for t in targets_of(node)):
        return None
    value: ast.expr | None = node.value
    while isinstance(value, ast.Call) and terminal(value) in (*_LAYOUT, "chunk", "split", "unbind"):
        value = receiver(value)
    if not isinstance(value, ast.Call):
        return None
    made = binding.unit.file.roles.values(value.func, binding.unit)
    layers = [binding.unit.file.dotted(m.func) for m, _ in made if isinstance(m, ast.Call)]
    half = bool(layers) and all(d.startswith("torch.nn.") and terminal_of(d) in _CAST for d in layers)
    return value if half else None


def terminal_of(dotted: str) -> str:
    """The last identifier of a dotted name."""
    return dotted.rpartition(".")[2]


def region_of(call: Event) -> autocast_regions.Region | None:
    """The active region that a module's call runs in, or that the module's own `forward` opens."""
    around = autocast_regions.active(call)
    return around or autocast_regions.of_forward(call.unit.file.roles.class_of(call.call.func, call.unit))


def _may_be_full(known: ClassModel) -> bool:
    """Whether a module of this file seems to give float32 out, whatever autocast does."""
    forward = known.method("forward")
    if forward is None:
        return True
    text = "\n".join(known.file.lines[forward.first - 1 : forward.last])
    words = _FULL if autocast_regions.of_forward(known) is None else [w for w in _FULL if w != "autocast"]
    return any(word in text for word in words)
