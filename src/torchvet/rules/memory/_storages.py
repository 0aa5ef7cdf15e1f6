"""Which tensors share their storage, and how large they are likely to be."""

from __future__ import annotations

import ast

from torchvet.rules.kit import SourceFile
from torchvet.rules.memory._lasting import bindings_at
from torchvet.source import model

_SAME_SIZE = model.name_set(
    "detach cpu clone contiguous to float half double view reshape squeeze flatten permute transpose cuda "
    "requires_grad_ unsqueeze bfloat16 numpy sigmoid softmax exp relu tanh log_softmax type"
)
"""Methods whose result has as many elements as what they are called on."""
_DEEPEST = 5


def origins(node: ast.expr | None, event: model.Event, depth: int = 0) -> list[tuple[ast.expr, model.Event]]:
    """The names and calls that an expression's tensors come from, sizes kept: methods that keep the number of elements
    are seen through, local names followed to what binds them. What reduces or indexes is left out."""
    # Also those that copy: the question is how large, not whose storage.
    node = model.under_methods(node, _SAME_SIZE)
    if model.is_attribute(node, "data"):
        return origins(node.value, event, depth)
    if isinstance(node, (ast.Tuple, ast.List)):
        return [pair for one in node.elts for pair in origins(one, event, depth)]
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return origins(node.value, event, depth)
    if isinstance(node, ast.Name):
        return _of_name(node, event, depth)
    return [(node, event)] if isinstance(node, ast.Call) else []


def _of_name(node: ast.Name, event: model.Event, depth: int) -> list[tuple[ast.expr, model.Event]]:
    bindings = bindings_at(node.id, event)
    # Bound twice, it stands for itself.
    if len(bindings) != 1 or depth > _DEEPEST:
        return [(node, event)]
    binding = bindings[0]
    value = getattr(binding.node, "value", None)
    if isinstance(binding.node, ast.Assign) and isinstance(value, ast.Call):
        # Tuples that a call gives are taken for what it makes.
        return origins(value, binding.unit.call_of(value) or binding, depth + 1)
    found = model.value_bound(binding.node, node.id)
    return origins(found, binding, depth + 1) if found is not None else [(node, event)]


def of_parameters(node: ast.expr, event: model.Event, names: list[str]) -> bool:
    """Whether an expression is one of the unit's parameters, whole."""
    return any(
        isinstance(value, ast.Name) and value.id in names and not bindings_at(value.id, at)
        for value, at in origins(node, event)
    )


def of_a_batch(file: SourceFile, node: ast.expr, event: model.Event, depth: int = 0) -> bool:
    """Whether an expression is as large as a batch for sure: a module's output, what a loop over a loader gives, a
    copy of a module's weights."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return any(of_a_batch(file, one, event, depth) for one in node.elts)
    # A loss is a number, whatever it is made of.
    if file.roles.hinted("loss", node):
        return False
    if event.unit.name == "forward" and _is_activation(file, node, event):
        return True
    return any(_is_large(file, value, at, depth) for value, at in origins(node, event))


_ACTIVATIONS = ("softmax", "log_softmax", "relu", "gelu", "sigmoid", "tanh", "silu", "leaky_relu", "elu")


def _is_activation(file: SourceFile, node: ast.expr | None, event: model.Event, depth: int = 0) -> bool:
    """Whether a module's forward computes it by a function of each element, so that it has the size of a layer."""
    while isinstance(node, ast.Call):
        on, name = model.receiver(node), model.terminal(node)
        torch = file.dotted(node.func).startswith("torch.")
        if name in _ACTIVATIONS and (torch or (on is not None and model.terminal(on) != event.unit.self_name())):
            return True
        if torch or name not in _SAME_SIZE:
            return False
        node = on
    if not isinstance(node, ast.Name) or depth > _DEEPEST:
        return False
    bindings = bindings_at(node.id, event)
    values = [
        model.value_for(b.node, t) for b in bindings for t in model.targets_of(b.node) if model.terminal(t) == node.id
    ]
    # Bound once, to one expression of its own.
    return len(bindings) == 1 == len(values) and _is_activation(file, values[0], bindings[0], depth + 1)


def _iterated(node: ast.expr) -> ast.expr:
    """`loader` of `enumerate(tqdm(loader))`."""
    while model.is_call(node, "enumerate", "tqdm", "track") and node.args:
        node = node.args[0]
    return node


def _counts(binding: model.Event, name: str) -> bool:
    """Whether a name is the number that `enumerate` gives."""
    node = binding.node
    first = model.targets_of(node)[0]
    counted = isinstance(node, ast.For) and model.is_call(node.iter, "enumerate")
    return counted and model.is_name(first, name)


def _gives_much(file: SourceFile, call: ast.Call, unit: model.Unit) -> bool:
    """Whether a call copies a module's weights, or runs a module that is no loss."""
    if file.dotted(call.func) == "copy.deepcopy" and call.args:
        copied = call.args[0]
        return model.terminal(copied) == "state_dict" or file.roles.is_a("module", copied, unit)
    return "criterion" not in file.roles.of(call.func, unit) and file.gradients.forwards.runs_module(call, unit)


def _is_large(file: SourceFile, value: ast.expr, at: model.Event, depth: int) -> bool:
    if isinstance(value, ast.Call):
        return _gives_much(file, value, at.unit)
    if not isinstance(value, ast.Name):
        return False
    for binding in bindings_at(value.id, at):
        if isinstance(binding.node, (ast.For, ast.AsyncFor)):
            return file.roles.is_a("loader", _iterated(binding.node.iter), at.unit) and not _counts(binding, value.id)
    if value.id in at.unit.parameters and depth < 3:
        given = [(one, call) for call in file.callers(at.unit) for one in file.passed(call, at.unit, value.id)]
        return bool(given) and all(of_a_batch(file, one, call, depth + 1) for one, call in given)
    return False
