"""Measures what a backward pass sends to the means in its loss: the product of all that the loss is multiplied by.

The mean over a batch gets 1 where the loss is used as it is, its weight where it is weighted, and a part of that where
the loss is divided. A hook on each node on the way reads the gradient that comes in, so that weights and divisions show
one by one, whoever wrote them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch

from torchvet.probes.base import graphs
from torchvet.probes.base.operators import names
from torchvet.probes.internals import graph_teardown
from torchvet.probes.internals.finite import readable
from torchvet.probes.internals.simulated import numbers

_MOST_NODES = 48
_MOST_PATHS = 8
_LINEAR = names(
    "Add Sub Rsub Neg Mul Div Sum Mean Squeeze Unsqueeze View UnsafeView ReshapeAlias Select Stack Cat ToCopy Clone "
    "Alias Expand"
)
_SUMS = names("Add Sub Rsub Stack Cat")
_ROWS = names("Stack Cat")
_REDUCING = names(
    "NllLoss NllLoss2D MseLoss SmoothL1Loss HuberLoss BinaryCrossEntropy BinaryCrossEntropyWithLogits SoftMarginLoss "
    "MultiMarginLoss MultilabelMarginLoss"
)
_MEAN = 1
"""torch's number for `reduction="mean"`."""
_LARGEST = 64.0
"""A larger factor is no weight, but the scale of a scaler that is not known."""
_EXACT = 0.03
_NEAR = 0.5, 1.98
"""Times the average's factor. An epoch's last window may be shorter, and one that takes in what an epoch has left over
has nearly twice the passes that its losses were divided by."""
_ENOUGH = 1.02
"""What the factors of all passes must sum up to at least."""
_ALIKE = 0.02
_ROUNDING = 0.005
"""Of bfloat16 and a division."""

Ratios = tuple[float, ...]
"""What a loss is multiplied by on its way to one mean, factor by factor."""
Verdict = Literal["summed", "averaged", "unclear"]


class Factors:
    """One pass: made before it begins, read after it has ended."""

    def __init__(self, roots: list[Any], scaled: set[int]) -> None:
        """`scaled` are the numbers of the nodes by which a scaler has multiplied a loss: its scale is no weight."""
        places: dict[Any, int] = {}
        self._values: dict[int, torch.Tensor] = {}
        self._paths: list[list[tuple[int, bool]]] = []
        self._rows: list[tuple[int, ...]] = []
        """By path: what turns the sum that it ends at into a mean, if it is divided by that."""
        for path in _paths(roots):
            self._rows.append(_rows(path[-1]))
            nodes = [node for node in path if graphs.result_numel(node) == 1]
            self._paths.append([(places.setdefault(n, len(places)), n._sequence_nr() in scaled) for n in nodes])
        self._handles = [node.register_prehook(self._notes(place)) for node, place in places.items()]

    def _notes(self, place: int) -> Callable[[tuple[Any, ...]], None]:
        values = self._values

        def note(gradients: tuple[Any, ...]) -> None:
            gradient = gradients[0] if gradients else None
            # With a graph (`create_graph`) it would keep that graph alive.
            if isinstance(gradient, torch.Tensor) and not gradient.requires_grad:
                values[place] = gradient

        return note

    def ended(self) -> None:
        """The pass is over, or failed: its graph may be gone through again."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def read(self) -> list[Ratios] | None:
        """The ratios of each path to a mean; None where one cannot be told."""
        values = {place: _number(gradient) for place, gradient in self._values.items()}
        found = []
        for path, rows in zip(self._paths, self._rows, strict=True):
            ratios, before, scaled = [], 1.0, False
            for place, by_scaler in path:
                value = values.get(place, 0.0)
                if not value or not math.isfinite(value):
                    return None
                # By a scaler's node the gradient has become larger by the scale alone.
                if not scaled:
                    ratios.append(value / before)
                before, scaled = value, by_scaler
            found += [tuple(ratios)] if not rows else _as_means(ratios, rows)
        return found or None


def _as_means(ratios: list[float], rows: tuple[int, ...]) -> list[Ratios]:
    """The path to a sum without the division by its own rows, which makes it a mean; none where it has no such."""
    place = next((i for i, ratio in enumerate(ratios) if any(abs(ratio * n - 1) < _ROUNDING for n in rows)), None)
    return [] if place is None else [(*ratios[:place], *ratios[place + 1 :])]


def judged(passes: int, seen: list[list[Ratios] | None]) -> tuple[Verdict, list[float]]:
    """Whether something has averaged these passes, by the paths of those that were measured; with the factors of those
    that nothing has averaged, the largest first."""
    measured = [one for one in seen if one is not None]
    if passes < 2 or not measured or len(measured) < len(seen):
        return "unclear", []
    first = measured[0]
    if any(_near(part * passes, 1 - _EXACT, 1 + _EXACT) for path in first for part in _parts(path)):
        return "averaged", []
    # Factors that differ from pass to pass are shares of the whole, by tokens, say.
    alike = all(_alike(_totals(first), _totals(one)) for one in measured)
    found = [math.prod(path) for path in first if _is_open(passes, path)] if alike else []
    return "summed" if found else "unclear", sorted({float(f"{one:.3g}") for one in found}, reverse=True)


def _totals(paths: list[Ratios]) -> list[float]:
    return [math.prod(path) for path in paths]


def _is_open(passes: int, path: Ratios) -> bool:
    """Whether nothing on the way to a mean can be the division by the number of passes."""
    total = math.prod(path)
    divided = any(_near(part * passes, *_NEAR) for part in _parts(path))
    # What sums up to less than 1 may be divided by more than their number.
    return not divided and total * passes > _ENOUGH and total <= _LARGEST


def _parts(path: Ratios) -> Iterator[float]:
    """The factors, and the products of those that follow each other: `loss * size / total` is one division."""
    # Those of 1 are the additions on the way.
    changing = [ratio for ratio in path if abs(ratio - 1) > 1e-6]
    return (math.prod(changing[i:j]) for i, j in itertools.combinations(range(len(changing) + 1), 2))


def _near(value: float, low: float, high: float) -> bool:
    return low <= value <= high


def _alike(one: list[float], other: list[float]) -> bool:
    return len(one) == len(other) and all(abs(a - b) <= _ALIKE * a for a, b in zip(one, other, strict=True))


def _number(gradient: torch.Tensor) -> float:
    """Its size; 0 where it cannot be read."""
    gradient = numbers(gradient)
    return abs(float(gradient)) if readable(gradient) and gradient.numel() == 1 else 0.0


def _paths(roots: list[Any]) -> list[list[Any]]:
    """The nodes from the roots down to each mean or sum that the loss is made of, weights on the way. A function of a
    mean (its root, an exponential, a product with another) is none: what reaches it is no weight."""
    waiting = [[root] for root in roots]
    found: list[list[Any]] = []
    for _ in range(_MOST_NODES):
        if not waiting or len(found) == _MOST_PATHS:
            break
        path = waiting.pop()
        node, kind = path[-1], _kind(path[-1])
        below = graph_teardown.nodes_below(node)
        if _is_mean(node, kind, below):
            found.append(path)
        elif kind in _LINEAR and (len(below) == 1 or kind in _SUMS):
            waiting += [[*path, one] for one in below if graphs.result_numel(one) == 1 or _kind(one) in _ROWS]
    return found


def _kind(node: Any) -> str:
    return graphs.name_of(node).partition("Backward")[0]


def _is_mean(node: Any, kind: str, below: list[Any]) -> bool:
    """Whether a node's result is the mean over more than one number, or the sum of them."""
    if graphs.result_numel(node) != 1:
        return False
    if kind in ("Mean", "Sum"):
        return bool(below) and graphs.result_numel(below[0]) > 1 and _kind(below[0]) not in _ROWS
    return kind in _REDUCING and getattr(node, "_saved_reduction", None) == _MEAN


def _rows(node: Any) -> tuple[int, ...]:
    """The rows, and the numbers, that a sum's node has summed up; none for a mean's."""
    if _kind(node) != "Sum":
        return ()
    sizes = graphs.result_sizes(graph_teardown.nodes_below(node)[0]) or (0,)
    # A sum that is divided by nothing is none of one row.
    return tuple(n for n in (sizes[0], math.prod(sizes)) if n > 1) or (0,)
