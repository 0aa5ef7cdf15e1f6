"""Sums of a reconstruction and a KL term: what each is reduced over, and with what factor it stands in the sum."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import Literal

from torchvet.rules.kit import Iterator
from torchvet.rules.shared import training_loops as loops
from torchvet.rules.training._kl_formula import kl_factor, literal, squared_difference
from torchvet.source import model
from torchvet.source.model import origins

Kind = Literal["", "elements", "samples", "summed", "averaged", "squares", "mean"]
"""A KL of each latent, of each sample, of the whole batch, or averaged over it; errors of each element, or their mean.
Empty for what is neither."""

_REDUCED: dict[tuple[Kind, str], Kind] = {
    ("elements", "sum"): "summed",
    ("elements", "sum of some"): "samples",
    ("samples", "sum"): "summed",
    ("samples", "sum of some"): "summed",
    ("samples", "mean"): "averaged",
    ("samples", "mean of some"): "averaged",
    ("squares", "mean"): "mean",
}
_SCALARS: tuple[Kind, ...] = ("summed", "averaged", "mean")
_FUNCTIONS = model.name_set("""
    mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits
""")
_CLASSES = model.name_set("MSELoss L1Loss SmoothL1Loss HuberLoss BCELoss BCEWithLogitsLoss")
LOSSES = (*sorted(_FUNCTIONS), *sorted(_CLASSES))
_DIVERGENCES = ("torch.distributions.kl_divergence", "torch.distributions.kl.kl_divergence")
_SCALED = {"mul": 1, "mul_": 1, "multiply": 1, "div": -1, "div_": -1, "divide": -1}
_DEEPEST = 9


@dataclass(frozen=True)
class Term:
    """One summand. Without a factor it is weighted by something that is no plain number."""

    kind: Kind
    factor: float | None = 1.0
    node: ast.Call | None = None
    """The call that makes it: of the loss, or of the first `sum` over a KL."""
    event: model.Event | None = None
    inner: float | None = None
    """Of a KL that is summed: what the divergence of each latent is multiplied by before that."""

    def times(self, factor: float | None) -> Term:
        """The same, multiplied."""
        known = self.factor is not None and factor is not None
        return replace(self, factor=self.factor * factor if known else None)  # type: ignore[operator]

    def over_batch(self) -> Term:
        """The same, divided by the number of samples."""
        return replace(self, kind="averaged") if self.kind == "summed" else self.times(None)


_OTHER = [Term("")]


def sums(unit: model.Unit) -> Iterator[tuple[model.Event, list[Term]]]:
    """The sums of a unit's statements, each with its terms."""
    for event in unit.events:
        node = event.node
        if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.Sub)):
            yield event, [*_bound(node.target, event, 0), *_signed(node, node.value, event, 0)]
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return)) and node.value is not None:
            yield from ((event, terms(one, event)) for one in _outermost(node.value))
        elif model.is_call(node, "backward"):
            yield from ((event, terms(one, event)) for one in _outermost(node.func))


def _outermost(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        yield node
    elif not isinstance(node, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.DictComp)):
        for one in ast.iter_child_nodes(node):
            yield from _outermost(one)


def terms(node: ast.AST | None, event: model.Event, depth: int = 0) -> list[Term]:
    """The terms that an expression is the sum of."""
    if depth > _DEEPEST or not isinstance(node, ast.expr):
        return _OTHER
    factor = kl_factor(node, event)
    if factor is not None:
        return [Term("elements", factor)]
    if squared_difference(node):
        return [Term("squares")]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return [one.times(-1) for one in terms(node.operand, event, depth + 1)]
    if isinstance(node, ast.BinOp):
        return _of_operation(node, event, depth)
    if isinstance(node, (ast.Name, ast.Attribute)):
        return _bound(node, event, depth)
    return _of_call(node, event, depth) if isinstance(node, ast.Call) else _OTHER


def _of_operation(node: ast.BinOp, event: model.Event, depth: int) -> list[Term]:
    if isinstance(node.op, (ast.Add, ast.Sub)):
        return [*terms(node.left, event, depth + 1), *_signed(node, node.right, event, depth)]
    left, right = literal(node.left), literal(node.right)
    if isinstance(node.op, ast.Mult) and left is not None:
        return [one.times(left) for one in terms(node.right, event, depth + 1)]
    if isinstance(node.op, ast.Div) and _counts_samples(node.right):
        return [one.over_batch() for one in terms(node.left, event, depth + 1)]
    if isinstance(node.op, (ast.Mult, ast.Div)):
        number = right if right is None or isinstance(node.op, ast.Mult) else 1 / right if right else None
        weighted = [one.times(number) for one in terms(node.left, event, depth + 1)]
        # `beta * kl`: what is weighted stands on the right.
        return weighted if number is not None else weighted + [t.times(None) for t in terms(node.right, event, depth)]
    return _OTHER


def _counts_samples(node: ast.expr) -> bool:
    """`len(x)`, `x.size(0)`, `x.shape[0]`."""
    if isinstance(node, ast.Subscript):
        return model.is_attribute(node.value, "shape") and literal(node.slice) == 0
    first = model.is_call(node, "size") and [literal(one) for one in node.args] == [0]
    return first or (isinstance(node, ast.Call) and model.is_name(node.func, "len"))


def _signed(node: ast.BinOp | ast.AugAssign, value: ast.expr, event: model.Event, depth: int) -> list[Term]:
    sign = -1 if isinstance(node.op, ast.Sub) else 1
    return [one.times(sign) for one in terms(value, event, depth + 1)]


# What a name holds ---------------------------------------------------------------------------------------------------


def _bound(node: ast.expr, event: model.Event, depth: int) -> list[Term]:
    """The terms of what a name, or an attribute of `self`, holds at an event."""
    if isinstance(node, ast.Name):
        if event.unit.home(node.id) is not event.unit:
            return _OTHER
        if not event.unit.bindings.get(node.id):
            return _of_parameter(node.id, event.unit, depth)
        before = event.bindings_before(node.id)
    elif isinstance(node, ast.Attribute) and model.is_name(node.value, event.unit.self_name()):
        before = [e for e in event.unit.events[: event.index] if _targets(e, node) and not e.excludes(event)]
    else:
        return _OTHER
    last = before[-1] if before and event.sure_after(before[-1]) else None
    if last is None:
        return _OTHER
    found = _given(node, last, depth)
    changed = any(_changes(e, node) for e in event.unit.events[last.index + 1 : event.index])
    return [one.times(None) for one in found] if changed else found


def _given(node: ast.expr, binding: model.Event, depth: int) -> list[Term]:
    made = binding.node
    if isinstance(made, ast.AugAssign):
        before = _bound(node, binding, depth + 1)
        adds = isinstance(made.op, (ast.Add, ast.Sub))
        return [*before, *_signed(made, made.value, binding, depth)] if adds else [one.times(None) for one in before]
    if isinstance(node, ast.Name):
        value, parts = loops.bound_value(binding, node.id)
        if value is None:
            return _agreed([terms(one, at, depth + 2) for one, at in parts])
        return terms(value, binding, depth + 1)
    return terms(made.value, binding, depth + 1) if isinstance(made, ast.Assign) else _OTHER


def _targets(event: model.Event, node: ast.Attribute) -> bool:
    if not isinstance(event.node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return False
    targets = model.targets_of(event.node)
    return any(
        isinstance(t, ast.Attribute) and ast.dump(t.value) == ast.dump(node.value) and t.attr == node.attr
        for t in targets
    )


def _changes(event: model.Event, node: ast.expr) -> bool:
    """`kl.mul_(weight)`: from there on it is weighted."""
    on = model.receiver(event.call) if isinstance(event.node, ast.Call) else None
    return on is not None and model.terminal(event.node).endswith("_") and ast.dump(on) == ast.dump(node)


def _of_parameter(name: str, unit: model.Unit, depth: int) -> list[Term]:
    """What every caller of this file gives."""
    calls = unit.file.callers(unit)
    values = [(value, call) for call in calls for value in unit.file.passed(call, unit, name)]
    return _agreed([terms(v, call, depth + 2) for v, call in values] if len(values) == len(calls) else [])


def _agreed(found: list[list[Term]]) -> list[Term]:
    """The first answer, if all are of the same kinds."""
    kinds = {tuple((one.kind, one.factor) for one in answer) for answer in found}
    return found[0] if len(kinds) == 1 else _OTHER


# Calls ---------------------------------------------------------------------------------------------------------------


def _of_call(node: ast.Call, event: model.Event, depth: int) -> list[Term]:
    unit, name = event.unit, model.terminal(node)
    on = model.operand(unit.file, node) if name in ("sum", "mean", "neg", *_SCALED) else None
    if on is not None and name in ("sum", "mean"):
        return [_reduced(one, node, event, name) for one in terms(on, event, depth + 1)]
    if on is not None:
        return [one.times(_multiplied(node, name)) for one in terms(on, event, depth + 1)]
    if _is_divergence(node, event):
        return [Term("elements")]
    kind = _loss(node, event)
    if kind:
        return [Term(kind, node=node, event=event)]
    own = unit.call_of(node)
    called = unit.file.callee(own) if own is not None else None
    return _agreed([terms(v, e, depth + 1) for v, e in called.returned]) if called is not None else _OTHER


def _is_divergence(node: ast.Call, event: model.Event) -> bool:
    """`kl_divergence(posterior, prior)` of torch.distributions, where the prior is the standard normal distribution."""
    file, prior = event.unit.file, model.argument(node, "q", 1)
    if prior is None or file.dotted(node.func) not in _DIVERGENCES:
        return False
    made = [value for value, _ in origins.made_by(prior, event.unit)]
    return bool(made) and all(_is_standard(file, one) for one in made)


def _is_standard(file: model.SourceFile, made: ast.expr) -> bool:
    if not isinstance(made, ast.Call) or not file.dotted(made.func).startswith("torch.distributions."):
        return False
    if model.terminal(made) == "Independent":
        return bool(made.args) and _is_standard(file, made.args[0])
    loc, scale = model.argument(made, "loc", 0), model.argument(made, "scale", 1)
    return model.terminal(made) == "Normal" and _is_all(loc, 0, "zeros") and _is_all(scale, 1, "ones")


def _is_all(node: ast.expr | None, number: float, name: str) -> bool:
    """Whether an expression is a number, or a tensor of nothing else."""
    if isinstance(node, ast.Call) and node.args and model.terminal(node) in ("tensor", "as_tensor"):
        node = node.args[0]
    return node is not None and (literal(node) == number or model.terminal(node).removesuffix("_like") == name)


def _multiplied(node: ast.Call, name: str) -> float | None:
    if name == "neg":
        return -1.0
    number = literal(node.args[-1]) if node.args else None
    return None if not number else number ** _SCALED[name]


def _reduced(one: Term, node: ast.Call, event: model.Event, name: str) -> Term:
    some = [k.value for k in node.keywords if k.arg in ("dim", "axis")]
    some += node.args[1:] if model.operand(event.unit.file, node) in node.args else node.args
    if one.kind in _SCALARS:
        return one
    # Over the samples, of each latent.
    first = any(literal(dim) == 0 for dim in some) and one.kind == "elements"
    kind: Kind = "" if first else _REDUCED.get((one.kind, f"{name} of some" if some else name), "")
    inner = one.factor if one.kind == "elements" else one.inner
    return replace(one, kind=kind, node=one.node or node, event=one.event or event, inner=inner)


def _loss(node: ast.Call, event: model.Event) -> Kind:
    """What a call of a loss gives, where that is no sum and not weighted."""
    file = event.unit.file
    if model.terminal(node) in _FUNCTIONS and file.dotted(node.func).startswith("torch.nn.functional."):
        return _by_reduction(node) if len(node.args) <= 2 else ""
    made = [v for v, _ in origins.made_by(node.func, event.unit)]
    kinds = {_by_reduction(one) if is_criterion(file, one) else "" for one in made}
    told = file.mentions(".reduction", ".size_average")  # set later
    return kinds.pop() if len(kinds) == 1 and not told else ""


def is_criterion(file: model.SourceFile, made: ast.expr) -> bool:
    """Whether an expression makes one of torch's criteria."""
    return (
        isinstance(made, ast.Call) and not made.args and file.dotted(made.func) in {f"torch.nn.{n}" for n in _CLASSES}
    )


def _by_reduction(node: ast.expr) -> Kind:
    assert isinstance(node, ast.Call)
    others = {k.arg for k in node.keywords} - {"reduction", "input", "target"}
    given = model.keyword(node, "reduction")
    if others or not (given is None or isinstance(given, ast.Constant)):
        return ""
    known: dict[object, Kind] = {"mean": "mean", "none": "squares"}
    return "mean" if given is None else known.get(given.value, "")
