"""Edits that give binary cross entropy logits in the place of probabilities: the sigmoid goes into the loss."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Iterator, Sequence, SourceFile
from torchvet.rules.precision import _losses
from torchvet.source.model import Event, Unit, edits, receiver, terminal, walk

_SIGMOIDS = ("torch.sigmoid", "torch.nn.functional.sigmoid", "torch.special.expit")
_LAYOUT = {"view", "reshape", "flatten", "squeeze", "unsqueeze", "float"}
_ASIDE = {"parameters", "named_parameters", "zero_grad", "train", "eval", "to", "cuda", "apply", "state_dict",
          "load_state_dict", "requires_grad_"}  # fmt: skip
"""Methods of a module that have nothing to do with what it gives."""


def with_logits(file: SourceFile, loss: Event) -> list[Edit]:
    """The loss on what its sigmoid was given; nothing where the sigmoid is not seen, or where something else reads what
    it gives."""
    function = loss.call.func
    if file.dotted(function) == "torch.nn.functional.binary_cross_entropy":
        bare = _without_sigmoid(file, loss) if isinstance(function, ast.Attribute) else []
        if not bare or not isinstance(function, ast.Attribute):
            return []
        return [*bare, _renamed(file, function, "binary_cross_entropy_with_logits")]
    made = _made_once(file, function, loss)
    if made is None or not isinstance(made.func, ast.Attribute):
        return []
    taken: list[Edit] = []
    for call in [loss] if made is function else _calls(file, loss, function):
        bare = _without_sigmoid(file, call)
        if not bare:
            taken = []
            break
        taken += [one for one in bare if one not in taken]
    taken = taken or _without_last_layer(file, loss, function)
    return [*taken, _renamed(file, made.func, "BCEWithLogitsLoss")] if taken else []


def _renamed(file: SourceFile, function: ast.Attribute, name: str) -> Edit:
    """The last name of a dotted one changed."""
    whole = edits.replace(file, function, name)
    end = whole.end
    return type(whole)(path=whole.path, start=(end[0], end[1] - len(function.attr)), end=end, text=name)


def _made_once(file: SourceFile, function: ast.expr, loss: Event) -> ast.Call | None:
    """The only call that makes a criterion."""
    made = [function] if isinstance(function, ast.Call) else _losses.makers(function, loss)
    return made[0] if len(made) == 1 and isinstance(made[0], ast.Call) else None


def _calls(file: SourceFile, loss: Event, function: ast.expr) -> Sequence[Event]:
    """Every call of a criterion that is bound once and that nothing but these calls reads; none where it may be used
    otherwise."""
    uses = _uses(file, function, loss.unit)
    calls = {id(e.call.func): e for e in file.calls(terminal(function))}
    return [calls[id(use)] for use in uses] if uses and all(id(use) in calls for use in uses) else []


def _uses(file: SourceFile, node: ast.expr, unit: Unit) -> list[ast.expr]:
    """Where what a name or an attribute of `self` stands for is read; none where it is bound twice, or by a name that
    means several things in the file."""
    if isinstance(node, ast.Name):
        home, name = unit.home(node.id), node.id
        others = [u for u in file.units if u is not home and (name in u.bindings or name in u.parameters)]
        if home is None or others or len(home.bindings.get(name, ())) != 1 or name in home.parameters:
            return []
        found = [n for n in walk(file.tree) if isinstance(n, ast.Name) and n.id == name]
        return [n for n in found if isinstance(n.ctx, ast.Load)]
    if not isinstance(node, ast.Attribute) or terminal(node.value) != unit.self_name() or not unit.self_name():
        return []
    every = [n for n in walk(file.tree) if isinstance(n, ast.Attribute) and n.attr == node.attr]
    loads = [n for n in every if isinstance(n.ctx, ast.Load)]
    owner, text = unit.method_class(), ast.unparse(node)
    alike = all(ast.unparse(n) == text and file.unit_at(n.lineno).method_class() is owner for n in every)
    return list(loads) if alike and len(every) == len(loads) + 1 else []


# The sigmoid of one call ---------------------------------------------------------------------------------------------


def _without_sigmoid(file: SourceFile, loss: Event) -> list[Edit]:
    """The first argument of a loss without its sigmoid: taken off here, or where a name is bound that only this loss
    reads, or the name that the sigmoid was given."""
    if not loss.call.args or isinstance(loss.call.args[0], ast.Starred):
        return []
    given = loss.call.args[0]
    inner = _inner_sigmoid(file, given)
    if inner is not None:
        return _put(file, *inner, given)
    if not isinstance(given, ast.Name) or loss.unit.home(given.id) is not loss.unit:
        return []
    binding = _losses.latest(loss, given.id)
    value = getattr(binding.node, "value", None) if binding is not None else None
    if binding is None or not isinstance(binding.node, ast.Assign) or not isinstance(value, ast.expr):
        return []
    if not any(isinstance(t, ast.Name) for t in binding.node.targets) or len(binding.node.targets) != 1:
        return []
    inner = _inner_sigmoid(file, value)
    if inner is None or binding.loop is not loss.loop or _changed_in_place(loss.unit, given.id):
        return []
    logits = inner[1]
    if isinstance(logits, ast.Name):
        if inner[0] is not value or _bound_between(loss, binding, logits.id):
            return []  # another value by now, or one that `+=` changed in place
        return [edits.replace(file, given, logits.id)]
    readers = [n for n in walk(loss.unit.node) if isinstance(n, ast.Name) and n.id == given.id]
    alone = sum(isinstance(n.ctx, ast.Load) for n in readers) == 1 and len(readers) == 2
    return _put(file, *inner, value) if alone else []


def _inner_sigmoid(file: SourceFile, node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """The sigmoid that an expression is, or another layout of, and what it is given."""
    while isinstance(node, ast.Call):
        on = receiver(node)
        if file.dotted(node.func) in _SIGMOIDS and len(node.args) == 1 and not node.keywords:
            return node, node.args[0]
        made = node.func
        module = isinstance(made, ast.Call) and file.dotted(made.func) == "torch.nn.Sigmoid"
        if module and len(node.args) == 1:
            return node, node.args[0]
        if on is None or file.dotted(node.func).startswith("torch."):
            return None
        if terminal(node) == "sigmoid" and not node.args and not node.keywords:
            return node, on
        if terminal(node) not in _LAYOUT:
            return None
        node = on
    return None


def _put(file: SourceFile, whole: ast.expr, inner: ast.expr, within: ast.expr) -> list[Edit]:
    """An expression in the place of the sigmoid of it, in brackets where more is done with that."""
    if whole.lineno != whole.end_lineno:
        return []
    text = file.segment(inner)
    bare = whole is within or isinstance(inner, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    return [edits.replace(file, whole, text if bare else f"({text})")]


def _changed_in_place(unit: Unit, name: str) -> bool:
    """Whether a method that changes its tensor is called on what a name stands for: `p.clamp_(…)`."""
    calls = (e.call for e in unit.events if isinstance(e.node, ast.Call) and terminal(e.node).endswith("_"))
    return any(isinstance(on := receiver(c), ast.Name) and on.id == name for c in calls)


def _bound_between(loss: Event, binding: Event, name: str) -> bool:
    return any(binding.index <= b.index < loss.index for b in loss.unit.bindings.get(name, ()))


# The sigmoid at the end of a model -----------------------------------------------------------------------------------


def _without_last_layer(file: SourceFile, loss: Event, function: ast.expr) -> list[Edit]:
    """`nn.Sequential(…, nn.Sigmoid())` without its last layer, where whatever it gives goes to this criterion."""
    calls = _calls(file, loss, function)
    models = [_model_of(file, call) for call in calls]
    if not models or any(m is None or m != models[0] for m in models):
        return []
    name = next(n for n in walk(file.tree) if isinstance(n, ast.Name) and n.id == models[0])
    binding = file.top.bindings.get(name.id, []) or loss.unit.bindings.get(name.id, [])
    value = getattr(binding[0].node, "value", None) if len(binding) == 1 else None
    layer = _last_sigmoid(file, value) if isinstance(value, ast.expr) else None
    uses = _uses(file, name, loss.unit)
    given = {id(n) for c in calls for n in _read_by(c)}
    parents = {id(c): n for n in walk(file.tree) for c in ast.iter_child_nodes(n)}
    if layer is None or not uses or not all(id(u) in given or _is_aside(u, parents) for u in uses):
        return []
    return layer


def _model_of(file: SourceFile, loss: Event) -> str | None:
    """The name of what gives the first argument of a loss, called in it or bound to a name that only losses read."""
    found = list(_read_by(loss))
    return found[0].id if len(found) == 1 else None


def _read_by(loss: Event) -> Iterator[ast.Name]:
    """The name of the model whose output a loss is given as it is, in another layout at most."""
    node: ast.expr | None = loss.call.args[0] if loss.call.args else None
    while isinstance(node, ast.Call) and terminal(node) in _LAYOUT and receiver(node) is not None:
        node = receiver(node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield node.func


def _is_aside(use: ast.expr, parents: dict[int, ast.AST]) -> bool:
    """Whether a use of a model is a call of one of its methods that do not run it."""
    attribute = parents.get(id(use))
    call = parents.get(id(attribute))
    return (
        isinstance(attribute, ast.Attribute)
        and attribute.attr in _ASIDE
        and isinstance(call, ast.Call)
        and call.func is attribute
    )


def _last_sigmoid(file: SourceFile, value: ast.expr) -> list[Edit] | None:
    """The last of a Sequential's layers taken out, where it is a Sigmoid on the line of the layer before or on its
    own."""
    while isinstance(value, ast.Call) and terminal(value) in ("to", "cuda", "train", "float") and receiver(value):
        value = receiver(value)  # type: ignore[assignment]
    if not isinstance(value, ast.Call) or file.dotted(value.func) != "torch.nn.Sequential" or len(value.args) < 2:
        return None
    *_, before, last = value.args
    if not isinstance(last, ast.Call) or file.dotted(last.func) != "torch.nn.Sigmoid" or value.keywords:
        return None
    start, stop = edits.end_of(file, before), edits.end_of(file, last)
    rows = file.lines[start[0] - 1 : stop[0]]
    rows = [rows[0][start[1] - 1 :], *rows[1:]]
    if isinstance(before, ast.Starred) or any("#" in row for row in rows):
        return None
    whole = edits.replace(file, last, "")
    return [type(whole)(path=file.path, start=start, end=stop, text="")]
