"""Backward calls: within a region, from a half loss, and through custom Functions that autocast does not know."""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType
from typing import Any

import torch

from torchvet.probes.base.kit import Place, Record, frames, graphs, names, place_in
from torchvet.probes.internals.graph_teardown import all_below
from torchvet.probes.precision.autocast_regions import HALVES, Regions
from torchvet.recording.records.autocast import AutocastBackward, FunctionPrecision, HalfLoss

_PRODUCTS = names(
    "AddmmBackward0 MmBackward0 BmmBackward0 BaddbmmBackward0 MvBackward0 AddmvBackward0 ConvolutionBackward0 "
    "LinearBackward0 DotBackward0"
)
_FACTORS = ("MulBackward0", "DivBackward0")
_MOST_NODES = 20_000
_RARELY = 4096
"""Graphs of backward calls outside of regions are read at the 1st, 2nd, 4th, 8th... call up to this one."""


class BackwardPrecisionProbe:
    """One for the session."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._within: dict[tuple[Place, str], AutocastBackward] = {}
        self._losses: dict[tuple[Place, torch.dtype], HalfLoss] = {}
        self._functions: dict[CodeType, FunctionPrecision] = {}
        self._calls = 0

    def starts(self, roots: list[torch.Tensor], scale: float) -> None:
        """`backward` is about to run from these tensors; `scale` is what a scaler multiplied the loss by."""
        self._calls += 1
        # A half loss is worth a record also outside of any region.
        halves = [dtype for dtype in map(_half_dtype, roots) if dtype is not None]
        region = self._regions.active(roots[0].device.type) if roots else None
        if region is None and not halves:
            # For custom Functions only: they show in the graph, in or out of a region.
            if self._calls <= _RARELY and not self._calls & (self._calls - 1):
                self._read(roots, None)
            return
        place = frames.user_place()
        if place is None:
            return
        for dtype in halves:
            seen = self._losses.setdefault((place, dtype), HalfLoss(place=place, dtype=HALVES[dtype], calls=0))
            seen.calls, seen.scale = seen.calls + 1, max(seen.scale, scale)
        if region is None:
            return
        # The region too: its fix is to end it before this call.
        new = AutocastBackward(place=place, region=region.site.place, dtype=HALVES.get(region.dtype, "?"), calls=0)
        use = self._within.setdefault((place, region.device), new)
        use.calls += 1
        # At the 1st, 2nd, 4th, 8th call and so on: a habit shows early, and looking goes on at next to no cost.
        if not use.calls & (use.calls - 1):
            use.looked += 1
            self._read(roots, use)

    def records(self) -> Iterable[Record]:
        """The running totals."""
        return [*self._within.values(), *self._losses.values(), *self._functions.values()]

    def _read(self, roots: list[torch.Tensor], use: AutocastBackward | None) -> None:
        """Go through the graph once: in which dtypes did products and custom Functions run?"""
        for node in all_below(graphs.roots_of(roots), _MOST_NODES):
            # Products that ran in float32 in the forward pass run in half in this backward: autocast is
            # on in it.
            if use is not None and graphs.name_of(node) in _PRODUCTS:
                use.products += 1
                use.full += _dtype(node) is torch.float32
            kind = getattr(node, "_forward_cls", None)
            # `custom_fwd` leaves this attribute: a Function that has it minds autocast.
            if kind is not None and not hasattr(node, "_fwd_used_autocast"):
                self._function(node, kind)

    def _function(self, node: Any, kind: Any) -> None:
        forward = getattr(kind, "forward", None)
        code = getattr(forward, "__code__", None)
        dtype = _dtype(node)
        if code is None or dtype not in HALVES or frames.owner(code.co_filename) != frames.USER:
            return
        # A Function that was given half, and gives half, has cast nothing.
        if not any(_dtype(n) is torch.float32 for n, _ in node.next_functions if n is not None):
            return
        new = FunctionPrecision(place=place_in(code), name=kind.__name__, calls=0, dtype=HALVES[dtype])
        record = self._functions.setdefault(code, new)
        record.calls, record.dtype = record.calls + 1, new.dtype


def _half_dtype(loss: torch.Tensor) -> torch.dtype | None:
    """The half dtype of a loss; a scaler's factor is a float32 scalar, which makes the product float32."""
    if loss.dtype in HALVES:
        return loss.dtype
    node: Any = loss.grad_fn
    # Through the scaler's multiplication: the loss below it is what was in half.
    if node is not None and graphs.name_of(node) in _FACTORS and not loss.shape:
        dtypes = [_dtype(below) for below, _ in node.next_functions if below is not None]
        return next((dtype for dtype in dtypes if dtype in HALVES), None)
    return None


def _dtype(node: Any) -> torch.dtype | None:
    """The dtype of a node's (first) result in the forward pass."""
    # Private (`private.ATTRIBUTES`): without it no dtype of the forward pass is known.
    known = getattr(node, "_input_metadata", None)
    return known[0].dtype if known else None
