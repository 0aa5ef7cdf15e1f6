"""Whether a value owns a graph that no backward of the file frees."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Recording, SourceFile, Store
from torchvet.rules.memory import _stores
from torchvet.rules.memory._lasting import bindings_at
from torchvet.source import model
from torchvet.source.model import destinations, torch_names
from torchvet.source.syntax import parts

_DEEPEST = 10
_LINEAR = model.name_set(
    "mean sum view reshape squeeze unsqueeze transpose permute t contiguous clone to float half double cuda cpu "
    "flatten expand repeat add sub neg type_as chunk split unbind stack cat requires_grad_ mm type"
)
"""Operations that save nothing of the size of their operand."""

_SAVING = {*torch_names.TENSOR_METHODS, "square", "var"} - _LINEAR


def own_graph(file: SourceFile, node: ast.expr, event: model.Event, depth: int = 0) -> model.Event | None:
    """The event that builds a graph with saved tensors of its own, which no backward goes through; None where one may,
    or that is not sure."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, ast.Name):
        return _of_name(file, node.id, event, depth)
    if isinstance(node, ast.BinOp):
        return _of_operation(file, node, event, depth)
    if isinstance(node, ast.Call):
        return _of_call(file, node, event, depth)
    if isinstance(node, ast.Attribute):
        return own_graph(file, node.value, event, depth + 1)
    if isinstance(node, (ast.Subscript, ast.NamedExpr, ast.UnaryOp, ast.Tuple, ast.List)):
        return _first(file, parts(node), event, depth)
    return None


def _of_name(file: SourceFile, name: str, event: model.Event, depth: int) -> model.Event | None:
    found = bindings_at(name, event)
    if not found:
        return _of_parameter(file, name, event, depth)
    # All its bindings at once: they may end in one backward.
    flow = destinations.Destinations(file)
    for binding in found:
        flow.bound_by(binding)
    # Where a part of it may go backward, its graph is needed.
    if not flow.follow().harmless:
        return None
    for binding in found:
        value = _value(binding, name)
        graph = own_graph(file, value, binding, depth + 1) if value is not None else None
        if graph is None:
            return None
    return graph


def _of_parameter(file: SourceFile, name: str, event: model.Event, depth: int) -> model.Event | None:
    unit, graph = event.unit, None
    if name not in unit.parameters:
        return None
    for caller in file.callers(unit):
        for value in file.passed(caller, unit, name):
            # Every caller must pass a graph of its own; with one that does not the line is right for
            # somebody.
            graph = own_graph(file, value, caller, depth + 2)
            if graph is None:
                return None
    return graph


def passed_graphs(
    file: SourceFile, node: ast.expr, event: model.Event
) -> list[tuple[ast.expr, model.Event, model.Event]]:
    """What single callers pass for a parameter that an expression keeps the graph of, each with its call and the event
    that builds the graph: a meter's `update(loss)`, which others give numbers."""
    name = _kept_parameter(node, event)
    found: list[tuple[ast.expr, model.Event, model.Event]] = []
    for caller in file.callers(event.unit) if name else ():
        for value in file.passed(caller, event.unit, name):
            graph = own_graph(file, value, caller) if file.gradients.carries(value, caller) == "yes" else None
            if graph is not None:
                found.append((value, caller, graph))
    return found


def goes_backward(store: Store, recording: Recording) -> bool | None:
    """Whether what a line stores may go into a backward later, as an episode's log-probabilities do: then its graph is
    needed until that. None where the text does not show it."""
    file = recording.model(store.path)
    kept = [one for one in _stores.collected(file) if one.event.line == store.line] if file is not None else []
    if file is None or not kept:
        return None
    flow = destinations.Destinations(file)
    for one in kept:
        flow.held_by(one.holder, one.event)
    return flow.follow().backward


def _kept_parameter(node: ast.expr, event: model.Event) -> str:
    """The parameter, never bound anew, whose graph goes into a sum, a product with a number or the value itself."""
    if isinstance(node, ast.Name):
        unit = event.unit
        # Without `self`.
        return node.id if node.id in unit.parameters[bool(unit.owner) :] and not unit.bindings.get(node.id) else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
        # In `value * n` either may be the tensor: the first that is a parameter is the quantity, by habit.
        return _kept_parameter(node.left, event) or _kept_parameter(node.right, event)
    return ""


def _value(binding: model.Event, name: str) -> ast.expr | None:
    node = binding.node
    if isinstance(node, ast.AugAssign):
        return node.value
    # `output, loss = model(x)`: the call that both came from.
    found = model.value_bound(node, name)
    if found is None and isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        return node.value
    return found


def _of_operation(file: SourceFile, node: ast.BinOp, event: model.Event, depth: int) -> model.Event | None:
    with_graph = _carrying(file, [node.left, node.right], event)
    if isinstance(node.op, (ast.Mult, ast.Div, ast.Pow, ast.MatMult)):
        # `x * 2` saves nothing; `x * y` saves both, `x ** 2` and `x @ w` their operands.
        both = len(with_graph) == 2 or isinstance(node.op, (ast.Pow, ast.MatMult))
        if both and not any(_is_scalar(file, s, event) for s in with_graph):
            return event
    return _first(file, with_graph, event, depth)


def _of_call(file: SourceFile, node: ast.Call, event: model.Event, depth: int) -> model.Event | None:
    name, on, unit = model.terminal(node), model.receiver(node), event.unit
    # The call's own event knows the loops and branches around it.
    own = unit.call_of(node) or event
    if file.gradients.carries(node, own) != "yes":
        return None
    if file.gradients.forwards.runs_module(node, unit):
        return own
    callee = file.callee(own)
    if callee is not None:
        return own if _returns_graphs(file, callee, depth) else None
    computes = computes_loss(file, node, unit) or file.dotted(node.func).startswith("torch.")
    # `F.relu(x)` has its tensor as the argument, `x.relu()` before the dot.
    operands = node.args if computes or on is None else [on]
    with_graph = _carrying(file, operands, own)
    # Other methods are not torch's own: what they save is not known.
    saves = name not in _LINEAR and (computes or name in _SAVING)
    if saves and not all(_is_scalar(file, s, own) for s in with_graph):
        return own
    return _first(file, with_graph, own, depth)


def _carrying(file: SourceFile, nodes: list[ast.expr], event: model.Event) -> list[ast.expr]:
    """Those of some expressions that surely carry a graph."""
    return [node for node in nodes if file.gradients.carries(node, event) == "yes"]


def _first(file: SourceFile, nodes: list[ast.expr], event: model.Event, depth: int) -> model.Event | None:
    """The first of the graphs that expressions own."""
    return next(filter(None, (own_graph(file, one, event, depth + 1) for one in nodes)), None)


def _returns_graphs(file: SourceFile, unit: model.Unit, depth: int) -> bool:
    """Whether a function returns values, and every one of them owns a graph."""
    ends = [(e.node.value, e) for e in unit.events if isinstance(e.node, ast.Return) and e.node.value is not None]
    return bool(ends) and all(own_graph(file, value, e, depth + 2) for value, e in ends)


def computes_loss(file: SourceFile, call: ast.Call, unit: model.Unit) -> bool:
    """Whether a call is of a loss function, by torch's name of it, by what it is made of, or by its own name."""
    roles = file.roles
    known = "loss" in torch_names.role_of_call(file.dotted(call.func)) or "criterion" in roles.of(call.func, unit)
    return known or roles.hinted("criterion", call.func)


def _is_scalar(file: SourceFile, node: ast.expr, event: model.Event) -> bool:
    """A loss, a mean: what an operation saves of it is a few bytes."""
    if file.roles.is_a("loss", node, event.unit):
        return True
    return model.is_call(node, "mean", "sum") and not node.args
