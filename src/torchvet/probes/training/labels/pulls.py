"""The differences that a loss pulls to 0: reached from its root by what grows as they grow, and by nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import names
from torchvet.probes.internals import private
from torchvet.probes.internals.graph_teardown import nodes_below
from torchvet.probes.internals.saved import saved_tensors
from torchvet.probes.training.labels.ranges import MOVING, plain_name

LOSSES = {"MseLoss": "loss", "SmoothL1Loss": "loss", "HuberLoss": "loss", "Sub": "sub"}
"""What compares two tensors, by the kind of operator that it was computed with."""
_GROWING = MOVING | names("Mean Sum Nansum Add Mul Div Sqrt ClampMin Log Log10 Log1P NanToNum")
"""What grows with what it is given: means, sums, weights. A kernel, a hinge, a softmax or a layer is none."""
_EVEN = names("Abs Pow LinalgVectorNorm Norm")
"""What makes distances of differences: of what is subtracted further below, no sign is known."""


class _Step(NamedTuple):
    node: Any
    grows: bool
    even: bool


def pulls(roots: Iterable[Any], most: int) -> Iterator[tuple[Any, str, bool]]:
    """The comparisons that losses lead to, with their kind, and whether a loss grows with them or falls."""
    queue = [_Step(root, True, False) for root in roots]
    seen = set(queue)
    # The list grows while it is gone through.
    for step in queue:
        name = plain_name(step.node)
        if name in LOSSES:
            yield step.node, LOSSES[name], step.grows
        if len(seen) < most:
            fresh = [one for one in _below(step, name) if one not in seen]
            seen.update(fresh)
            queue += fresh


def _below(step: _Step, name: str) -> list[_Step]:
    node, grows, even = step
    if name in ("Mul", "Div") and (weight := _weight(node)) is not None:
        return _weighted(step, weight)
    if name in _GROWING or name in _EVEN:
        return [_Step(below, grows, even or name in _EVEN) for below in nodes_below(node)]
    # Below a distance a difference is what the distance is measured between, and not one loss less another.
    if even:
        return []
    if name in ("Neg", "Rsub"):
        return [_Step(below, not grows, even) for below in nodes_below(node)]
    if name == "Sub":
        first = node.next_functions[0][0]
        return [_Step(below, grows if below is first else not grows, even) for below in nodes_below(node)]
    return []


def _weighted(step: _Step, weight: float) -> list[_Step]:
    # Of a distance that is weighted below another one no sign is known.
    if weight == 0 or (weight < 0 and step.even):
        return []
    return [_Step(below, step.grows is (weight > 0), step.even) for below in nodes_below(step.node)]


def _weight(node: Any) -> float | None:
    """The number on the host that a product is weighted with, or a quotient divided by; None where it is none."""
    saved = [one for one in saved_tensors(node) if one.numel() == 1 and not one.requires_grad]
    plain = len(saved) == 1 and type(saved[0]) is torch.Tensor and saved[0].device.type == "cpu"
    if not plain:
        return None
    # A mode would be given the number itself in the place of its tensor.
    with private.DisableTorchDispatch():
        return float(saved[0])
