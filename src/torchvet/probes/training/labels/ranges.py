"""The range of numbers that a prediction cannot leave, as its graph tells, and how targets lie to it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import graphs, names
from torchvet.probes.internals.graph_teardown import nodes_below
from torchvet.probes.internals.simulated import plain_values

_INF = math.inf
_Limits = tuple[str, float, float]
"""What `Bound` has."""
_MOST_NODES = 64
"""Nodes between a prediction and the operators that bound it."""
_SAMPLED = 1 << 16
"""Targets of a batch that are looked at."""
_FEWEST = 2
_TOLERATED = 0.05
"""Standard deviations of the targets by which one may lie outside: noise around 0, say. Chosen, not measured."""

MOVING = names(
    "Squeeze Unsqueeze View UnsafeView ReshapeAlias Slice Select Transpose T Permute Expand Clone ToCopy Alias Cat "
    "Stack Index IndexSelect Gather Take MaskedSelect Split SplitWithSizes Unbind Narrow Flip Roll Repeat AsStrided "
    "Unfold Diagonal _DDPSink"
)
"""What moves, copies or leaves out numbers and changes none. Any other operator may widen the range."""
_JOINING = names("Cat Stack")
_FIXED = {
    "Relu": ("relu", 0.0, _INF),
    "Sigmoid": ("sigmoid", 0.0, 1.0),
    "Tanh": ("tanh", -1.0, 1.0),
    "Softmax": ("softmax", 0.0, 1.0),
    "LogSoftmax": ("log_softmax", -_INF, 0.0),
    "LogSigmoid": ("log_sigmoid", -_INF, 0.0),
    "Softplus": ("softplus", 0.0, _INF),
    "Hardsigmoid": ("hardsigmoid", 0.0, 1.0),
    # The lowest points of their curves, rounded down.
    "Gelu": ("gelu", -0.171, _INF),
    "Silu": ("silu", -0.279, _INF),
    "Mish": ("mish", -0.31, _INF),
    "Hardswish": ("hardswish", -0.375, _INF),
    "Abs": ("abs", 0.0, _INF),
    "Exp": ("exp", 0.0, _INF),
    "Sqrt": ("sqrt", 0.0, _INF),
    "Sin": ("sin", -1.0, 1.0),
    "Cos": ("cos", -1.0, 1.0),
}


class Bound(NamedTuple):
    """An operator that bounds what it gives, and its range."""

    operator: str
    low: float
    high: float


class Bounded(NamedTuple):
    """What bounds a prediction: the node of one such operator, and its number."""

    bound: Bound
    at: Any
    node: int


class Reach(NamedTuple):
    """How a batch's targets lie to a range: see `TargetsOutside`."""

    targets: int
    below: int
    above: int
    floor: float
    spread: float
    values: tuple[float, float] | None


def plain_name(node: Any) -> str:
    """`Relu` of `ReluBackward0`."""
    return graphs.name_of(node).rpartition("::")[2].rstrip("0123456789").removesuffix("Backward")


def bound_of(node: Any) -> Bounded | None:
    """The operator that bounds what a node gives; None where none does, or several do by unlike ranges."""
    found: dict[Any, Bound] = {}
    queue, seen = [node], {node}
    # The list grows while it is gone through.
    for one in queue:
        name = plain_name(one)
        if name in MOVING:
            # A part that has no graph is no prediction, and the targets beside it may be anything.
            if name in _JOINING and any(following is None for following, _ in one.next_functions):
                return None
            fresh = [below for below in nodes_below(one) if below not in seen]
            seen.update(fresh)
            queue += fresh
            continue
        bound = _bound(name, one)
        if bound is None or len(queue) > _MOST_NODES or (found and bound not in found.values()):
            return None
        found[one] = bound
    first = min(found, key=lambda one: int(one._sequence_nr()), default=None)
    return Bounded(found[first], first, int(first._sequence_nr())) if first is not None else None


def measured(targets: torch.Tensor, bound: Bound) -> Reach | None:
    """Where a batch's targets lie; None where they cannot be read, or are too few to have a spread."""
    values = _on_host(targets)
    values = values[values.isfinite()] if values is not None else None
    if values is None or values.numel() < _FEWEST:
        return None
    deviation = float(values.std())
    tolerated = _TOLERATED * deviation
    below, above = values < bound.low - tolerated, values > bound.high + tolerated
    outside = values[below | above]
    beyond = (bound.low - values).clamp(min=0) + (values - bound.high).clamp(min=0)
    return Reach(
        targets=values.numel(),
        below=int(below.sum()),
        above=int(above.sum()),
        floor=float(beyond.square().sum()),
        spread=deviation**2 * values.numel(),
        values=(float(outside.min()), float(outside.max())) if outside.numel() else None,
    )


def _on_host(tensor: torch.Tensor) -> torch.Tensor | None:
    """The values of a plain tensor, or of evenly spread parts of a large one, where they may be read now."""
    plain = plain_values(tensor)
    if plain is None:
        return None
    while plain.numel() > _SAMPLED:
        sizes = list(plain.shape)
        widest = sizes.index(max(sizes))
        step = -(-plain.numel() // _SAMPLED)
        # A view: a copy of a large batch would cost memory.
        plain = plain[(slice(None),) * widest + (slice(None, None, min(step, plain.shape[widest])),)]
    return plain.cpu().double().flatten()


def _bound(name: str, node: Any) -> Bound | None:
    known = _FIXED.get(name)
    if known is not None:
        return Bound(*known)
    of_node = _BY_NODE.get(name)
    limits = of_node(node) if of_node is not None else None
    # Without a limit on either side, or with none between the two, nothing is bounded.
    return Bound(*limits) if limits is not None and limits[1] < limits[2] and limits[1:] != (-_INF, _INF) else None


def _number(node: Any, name: str, otherwise: float) -> float:
    """A number that a node keeps; `otherwise` where it has none."""
    value = getattr(node, f"_saved_{name}", None)
    return float(value) if isinstance(value, (int, float)) else otherwise


def _clamp(node: Any) -> _Limits | None:
    # Limits that are tensors differ from one element to the next.
    return "clamp", _number(node, "min", -_INF), _number(node, "max", _INF)


def _hardtanh(node: Any) -> _Limits | None:
    return "hardtanh", _number(node, "min_val", -_INF), _number(node, "max_val", _INF)


def _elu(node: Any) -> _Limits | None:
    alpha, scale = _number(node, "alpha", _INF), _number(node, "scale", 1.0)
    return "elu", -alpha * scale, _INF


def _power(node: Any) -> _Limits | None:
    exponent = _number(node, "exponent", 1.0)
    return ("pow", 0.0, _INF) if exponent > 0 and exponent % 2 == 0 else None


_BY_NODE = {
    "Clamp": _clamp,
    "ClampMin": _clamp,
    "ClampMax": _clamp,
    "Hardtanh": _hardtanh,
    "Elu": _elu,
    "Celu": _elu,
    "Pow": _power,
}
