"""Edits that give binary cross entropy logits in the place of probabilities: the sigmoid goes into the loss."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Sequence, SourceFile
from torchvet.rules.precision import _losses
from torchvet.rules.precision.fixes.moves import together
from torchvet.source import model

_SIGMOIDS = ("torch.sigmoid", "torch.nn.functional.sigmoid", "torch.special.expit")
_LAYOUT = model.name_set("view reshape flatten squeeze unsqueeze float")
_ASIDE = model.name_set(
    "parameters named_parameters zero_grad train eval to cuda apply state_dict load_state_dict requires_grad_"
)
"""Methods of a module that have nothing to do with what it gives."""
_PLAIN = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


def with_logits(file: SourceFile, loss: model.Event) -> list[Edit]:
    """The loss on what its sigmoid was given; nothing where the sigmoid is not seen, or where something else reads what
    it gives."""
    function = loss.call.func
    if file.dotted(function) == "torch.nn.functional.binary_cross_entropy":
        return together(_without_sigmoid(file, loss), _renamed(file, function, "binary_cross_entropy_with_logits"))
    makers = [function] if isinstance(function, ast.Call) else _losses.makers(function, loss)
    made = makers[0] if len(makers) == 1 else None
    if not isinstance(made, ast.Call):
        return []
    calls = _calls(file, loss, function)
    bare = together(*(_without_sigmoid(file, call) for call in ([loss] if made is function else calls)))
    taken = list(dict.fromkeys(bare)) or _without_last_layer(file, loss, calls)
    return together(taken, _renamed(file, made.func, "BCEWithLogitsLoss"))


def _renamed(file: SourceFile, function: ast.expr, name: str) -> list[Edit]:
    """The last name of a dotted one changed."""
    if not isinstance(function, ast.Attribute):
        return []
    line, column = model.edits.end_of(file, function)
    return [Edit(path=file.path, start=(line, column - len(function.attr)), end=(line, column), text=name)]


def _calls(file: SourceFile, loss: model.Event, function: ast.expr) -> list[model.Event]:
    """Every call of a criterion that is bound once and that nothing but these calls reads; none where it may be used
    otherwise."""
    uses = _uses(file, function, loss.unit)
    calls = {id(e.call.func): e for e in file.calls(model.terminal(function))}
    return [calls[id(use)] for use in uses] if all(id(use) in calls for use in uses) else []


def _uses(file: SourceFile, node: ast.expr, unit: model.Unit) -> Sequence[ast.expr]:
    """Where what a name or an attribute of `self` stands for is read; none where it is bound twice, or by a name that
    means several things in the file."""
    if isinstance(node, ast.Name):
        home = unit.home(node.id)
        means = [u for u in file.units if node.id in u.bindings or node.id in u.parameters]
        once = home is not None and node.id not in home.parameters and len(home.bindings.get(node.id, ())) == 1
        return model.reads_of(file.tree, node.id) if once and means == [home] else []
    return _uses_on_self(file, node, unit) if isinstance(node, ast.Attribute) else []


def _uses_on_self(file: SourceFile, node: ast.Attribute, unit: model.Unit) -> Sequence[ast.expr]:
    """Where an attribute of `self` is read, if one class alone has an attribute of this name, and binds it once."""
    if model.terminal(node.value) != unit.self_name() or not unit.self_name():
        return []
    every = [n for n in model.walk(file.tree) if model.is_attribute(n, node.attr)]
    loads = [n for n in every if isinstance(n.ctx, ast.Load)]
    owner, text = unit.method_class(), ast.unparse(node)
    alike = all(ast.unparse(n) == text and file.unit_at(n.lineno).method_class() is owner for n in every)
    return loads if alike and len(every) == len(loads) + 1 else []


# The sigmoid of one call ---------------------------------------------------------------------------------------------


def _without_sigmoid(file: SourceFile, loss: model.Event) -> list[Edit]:
    """The first argument of a loss without its sigmoid: taken off here, or where a name is bound that only this loss
    reads, or the name that the sigmoid was given."""
    given = loss.call.args[0] if loss.call.args else None
    inner = _inner_sigmoid(file, given)
    if inner is not None and given is not None:
        return _put(file, *inner, given)
    if not isinstance(given, ast.Name):
        return []
    binding = _bound_beside(loss, given)
    return _without_named_sigmoid(file, loss, given, binding) if binding is not None else []


def _bound_beside(loss: model.Event, name: ast.Name) -> model.Event | None:
    """The assignment, to this name alone, that gives a loss what the name stands for: in the same function and loop."""
    binding = loss.binding_of(name.id) if loss.unit.home(name.id) is loss.unit else None
    if binding is None or binding.loop is not loss.loop or not isinstance(binding.node, ast.Assign):
        return None
    return binding if [type(t) for t in binding.node.targets] == [ast.Name] else None


def _without_named_sigmoid(file: SourceFile, loss: model.Event, given: ast.Name, binding: model.Event) -> list[Edit]:
    """The sigmoid taken off where a name is bound to it, or the logits' own name given to the loss."""
    value, unit = binding.node.value, loss.unit  # type: ignore[attr-defined]
    inner = _inner_sigmoid(file, value)
    # Changed in place between, the probabilities are no sigmoid of the logits any more.
    if inner is None or _is_changed_in_place(unit, given.id):
        return []
    sigmoid, logits = inner
    if isinstance(logits, ast.Name):
        # Bound in between, it has another value by now, also where `+=` changed it in place.
        between = any(binding.index <= b.index < loss.index for b in unit.bindings.get(logits.id, ()))
        return [model.edits.replace(file, given, logits.id)] if sigmoid is value and not between else []
    names = [n for n in model.walk(unit.node) if model.is_name(n, given.id)]
    return _put(file, *inner, value) if len(names) == 2 and len(model.reads_of(unit.node, given.id)) == 1 else []


def _inner_sigmoid(file: SourceFile, node: ast.expr | None) -> tuple[ast.expr, ast.expr] | None:
    """The sigmoid that an expression is, or another layout of, and what it is given."""
    node = model.under_methods(node, _LAYOUT)
    if not isinstance(node, ast.Call):
        return None
    on, module = (
        model.receiver(node),
        isinstance(node.func, ast.Call) and file.dotted(node.func.func) == "torch.nn.Sigmoid",
    )
    if len(node.args) == 1 and (module or (file.dotted(node.func) in _SIGMOIDS and not node.keywords)):
        return node, node.args[0]
    method = model.is_call(node, "sigmoid") and not node.args and not node.keywords
    return (node, on) if on is not None and method and not file.dotted(node.func).startswith("torch.") else None


def _put(file: SourceFile, whole: ast.expr, inner: ast.expr, within: ast.expr) -> list[Edit]:
    """An expression in the place of the sigmoid of it, in brackets where more is done with that."""
    if whole.lineno != whole.end_lineno:
        return []
    text, bare = file.segment(inner), whole is within or isinstance(inner, _PLAIN)
    return [model.edits.replace(file, whole, text if bare else f"({text})")]


def _is_changed_in_place(unit: model.Unit, name: str) -> bool:
    """Whether a method that changes its tensor is called on what a name stands for: `p.clamp_(…)`."""
    calls = (e.call for e in unit.events if isinstance(e.node, ast.Call) and model.terminal(e.node).endswith("_"))
    return any(model.is_name(model.receiver(call), name) for call in calls)


# The sigmoid at the end of a model -----------------------------------------------------------------------------------


def _without_last_layer(file: SourceFile, loss: model.Event, calls: Sequence[model.Event]) -> list[Edit]:
    """`nn.Sequential(…, nn.Sigmoid())` without its last layer, where whatever it gives goes to this criterion."""
    models = [_model_of(call) for call in calls]
    if not models or models[0] is None or any(m is None or m.id != models[0].id for m in models):
        return []
    name = models[0].id
    bound = file.top.bindings.get(name, []) or loss.unit.bindings.get(name, [])
    value = getattr(bound[0].node, "value", None) if len(bound) == 1 else None
    uses, given = _uses(file, models[0], loss.unit), {id(m) for m in models}
    parents = model.parents_in(file.tree)
    if not uses or not all(id(use) in given or _is_aside(use, parents) for use in uses):
        return []
    return _last_sigmoid(file, value)


def _model_of(loss: model.Event) -> ast.Name | None:
    """The name of the model whose output a loss is given as it is, in another layout at most."""
    node = model.under_methods(loss.call.args[0], _LAYOUT) if loss.call.args else None
    return node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None


def _is_aside(use: ast.expr, parents: dict[int, ast.AST]) -> bool:
    """Whether a use of a model is a call of one of its methods that do not run it."""
    attribute = parents.get(id(use))
    call = parents.get(id(attribute))
    called = isinstance(call, ast.Call) and call.func is attribute
    return called and isinstance(attribute, ast.Attribute) and attribute.attr in _ASIDE


def _last_sigmoid(file: SourceFile, value: ast.expr | None) -> list[Edit]:
    """The last of a Sequential's layers taken out, where it is a Sigmoid on the line of the layer before or on its
    own."""
    value = model.under_methods(value, ("to", "cuda", "train", "float"))
    if not isinstance(value, ast.Call) or file.dotted(value.func) != "torch.nn.Sequential" or len(value.args) < 2:
        return []
    *_, before, last = value.args
    if not isinstance(last, ast.Call) or file.dotted(last.func) != "torch.nn.Sigmoid" or value.keywords:
        return []
    start, stop = model.edits.end_of(file, before), model.edits.end_of(file, last)
    rows = file.lines[start[0] - 1 : stop[0]]
    rows[0] = rows[0][start[1] - 1 :]
    # A comment between the layers would go with the last one.
    if isinstance(before, ast.Starred) or any("#" in row for row in rows):
        return []
    return [Edit(path=file.path, start=start, end=stop, text="")]
