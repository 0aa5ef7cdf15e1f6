"""Backward calls: within a region, from a half loss, and through custom Functions that autocast does not know."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

import torch

from torchvet.probes.base import frames
from torchvet.probes.base.ledger import Line, locate, place_of_line
from torchvet.probes.precision.autocast_regions import HALVES, Region, Regions
from torchvet.recording.records.autocast import AutocastBackward, FunctionPrecision, HalfLoss
from torchvet.recording.records.base import Place, Record

_PRODUCTS = frozenset((
    "AddmmBackward0", "MmBackward0", "BmmBackward0", "BaddbmmBackward0", "MvBackward0", "AddmvBackward0",
    "ConvolutionBackward0", "LinearBackward0", "DotBackward0",
))  # fmt: skip
_FACTORS = ("MulBackward0", "DivBackward0")
_MOST_NODES = 20_000
_RARELY = 4096
"""Graphs of backward calls outside of regions are read at the 1st, 2nd, 4th, 8th... call up to this one."""


class _Use:
    def __init__(self, region: Region) -> None:
        self.region = region
        self.calls = 0
        self.looked = 0
        self.products = 0
        self.full = 0


class BackwardPrecisionProbe:
    """One for the session."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._within: dict[tuple[Line | None, str], _Use] = {}
        self._losses: dict[tuple[Line | None, torch.dtype], list[float]] = {}
        self._functions: dict[CodeType, FunctionPrecision] = {}
        self._calls = 0

    def starts(self, roots: list[torch.Tensor], scale: float) -> None:
        """`backward` is about to run from these tensors; `scale` is what a scaler multiplied the loss by."""
        self._calls += 1
        halves = [dtype for dtype in map(_half_dtype, roots) if dtype is not None]
        region = self._regions.active(roots[0].device.type) if roots else None
        if region is None and not halves:
            if self._calls <= _RARELY and not self._calls & (self._calls - 1):
                self._read(roots, None)
            return
        user, inner = locate(sys._getframe(2))
        line = user or inner
        for dtype in halves:
            seen = self._losses.setdefault((line, dtype), [0, 0.0])
            seen[:] = seen[0] + 1, max(seen[1], scale)
        if region is None:
            return
        use = self._within.setdefault((line, region.device), _Use(region))
        use.calls += 1
        if not use.calls & (use.calls - 1):
            use.looked += 1
            self._read(roots, use)

    def records(self) -> Iterable[Record]:
        """The running totals."""
        for (line, _), use in self._within.items():
            place, region = place_of_line(line), use.region
            if place is not None:
                yield AutocastBackward(
                    place=place, region=region.site.place, dtype=HALVES.get(region.dtype, "?"), calls=use.calls,
                    looked=use.looked, products=use.products, full=use.full,
                )  # fmt: skip
        for (line, dtype), (calls, scale) in self._losses.items():
            place = place_of_line(line)
            if place is not None:
                yield HalfLoss(place=place, dtype=HALVES[dtype], calls=int(calls), scale=scale)
        yield from self._functions.values()

    def _read(self, roots: list[torch.Tensor], use: _Use | None) -> None:
        """Go through the graph once: in which dtypes did products and custom Functions run?"""
        for node in nodes_below(roots):
            if use is not None and node.name() in _PRODUCTS:
                use.products += 1
                use.full += _dtype(node) is torch.float32
            kind = getattr(node, "_forward_cls", None)
            if kind is not None and not hasattr(node, "_fwd_used_autocast"):
                self._function(node, kind)

    def _function(self, node: Any, kind: Any) -> None:
        forward = getattr(kind, "forward", None)
        code = getattr(forward, "__code__", None)
        dtype = _dtype(node)
        if code is None or dtype not in HALVES or frames.owner(code.co_filename) != frames.USER:
            return
        if not any(_dtype(n) is torch.float32 for n, _ in node.next_functions if n is not None):
            return
        before = self._functions.get(code)
        place = Place(code.co_filename, code.co_firstlineno, getattr(code, "co_qualname", code.co_name))
        calls = (before.calls if before is not None else 0) + 1
        self._functions[code] = FunctionPrecision(
            place=place, name=kind.__name__, calls=calls, dtype=HALVES[dtype]
        )  # fmt: skip


def nodes_below(roots: list[torch.Tensor]) -> Iterator[Any]:
    """The nodes of a graph, each once; a very large graph in part."""
    waiting = [r.grad_fn for r in roots if r.grad_fn is not None]
    seen = set(waiting)
    while waiting and len(seen) < _MOST_NODES:
        node: Any = waiting.pop()
        yield node
        for below, _ in node.next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                waiting.append(below)


def _half_dtype(loss: torch.Tensor) -> torch.dtype | None:
    """The half dtype of a loss; a scaler's factor is a float32 scalar, which makes the product float32."""
    if loss.dtype in HALVES:
        return loss.dtype
    node: Any = loss.grad_fn
    if node is not None and node.name() in _FACTORS and not loss.shape:
        dtypes = [_dtype(below) for below, _ in node.next_functions if below is not None]
        return next((dtype for dtype in dtypes if dtype in HALVES), None)
    return None


def _dtype(node: Any) -> torch.dtype | None:
    """The dtype of a node's (first) result in the forward pass."""
    known = getattr(node, "_input_metadata", None)
    return known[0].dtype if known else None
