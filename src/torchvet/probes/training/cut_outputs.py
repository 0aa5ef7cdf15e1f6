"""Watches what leaves autograd's graph by `detach()` or `item()`: does the loss depend on what led there otherwise?"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.kit import EVERY_STEP, Host, Optimizer, Place, Record, SiteWatcher, StepKind, graphs
from torchvet.probes.internals.graph_teardown import all_below
from torchvet.probes.numerics import half
from torchvet.probes.training.idle_terms import IdleTerms
from torchvet.recording.records.numeric import CutOutput

_aten = torch.ops.aten
_MOST_CUTS, _MOST_LOOKS = 8, 8
"""Lines that are followed in one step, and steps in which one line is."""
_MOST_NODES = 8192
"""Nodes of a graph that are gone through; what a larger one leads to is not known."""

_KEPT = ("_raw_saved_result", "_raw_saved_output")


class CutOutputs(SiteWatcher[Place, CutOutput]):
    """What leaves the graph."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._cuts: dict[Place, set[int]] = {}
        """In the step under way: by line, the optimizers' parameters above what left the graph there."""
        self._kept: set[tuple[str, int]] = set()
        """Nodes whose results autograd has detached in the step under way."""
        self._reached: set[int] | None = set()
        """Those that a backward pass of the step leads to; None where that is not known."""
        self._idle = IdleTerms(self._above, host.known.parameters)
        self._allowance = half.Allowance(0.05, 0.002)

    def install(self) -> None:
        """In sampled steps, hear what leaves the graph."""
        self.host.hear([_aten.detach.default, _aten._local_scalar_dense.default], self._leaves)

    def _leaves(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        node = args[0].grad_fn
        # Cheapest first: `detach` is among the most frequent operators.
        if node is None or half.in_backward() or self._keeps_result(func, node) or not self._allowance.left():
            return
        place = self.host.line()
        if place is None or (place not in self._cuts and len(self._cuts) >= _MOST_CUTS):
            return
        # A line's habit shows soon.
        if place in self.sites and self.sites[place].looks >= _MOST_LOOKS:
            return
        above = self._above([node])
        if above:
            self._cuts[place] = self._cuts.get(place, set()) | above

    def _keeps_result(self, func: Any, node: Any) -> bool:
        """Whether this is autograd's own `detach()` of a result that it keeps for backward (tanh's is one)."""
        if func is not _aten.detach.default or not any(hasattr(type(node), name) for name in _KEPT):
            return False
        key = graphs.name_of(node), node._sequence_nr()
        # Autograd detaches a node's result once; a second `detach` is the program's.
        fresh = key not in self._kept
        self._kept.add(key)
        return fresh

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """What does the loss depend on?"""
        if is_grad:
            return
        if self._cuts or self._idle.waits:
            self._idle.backward_starts(tensors)
        if not self._cuts or self._reached is None:
            return
        found = self._above(graphs.roots_of(tensors))
        # Once a graph was too large nothing of this step can be judged.
        self._reached = self._reached | found if found is not None else None

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """Judge what left in the step that ends."""
        reached, self._reached = self._reached, set()
        cuts, self._cuts = self._cuts, {}
        self._kept.clear()
        self._idle.stepped(optimizer, cuts, self.sites)
        for place, above in cuts.items() if reached else ():
            self._judge(place, above, reached or set())

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step without an optimizer's says nothing."""
        # Boundaries of backward calls lie within a step.
        if kind == "training":
            self._cuts, self._reached = {}, set()
            self._kept.clear()

    def _judge(self, place: Place, above: set[int], reached: set[int]) -> None:
        record = self.sites.setdefault(place, CutOutput(place=place))
        record.looks += 1
        missed = above - reached
        # A loss that also reaches other layers was cut on purpose: by a value that weighs a policy, for example.
        # More than half of what the cut value came from learns by nothing else.
        if 2 * len(missed) > len(above) and not self._has_matrix(reached - above):
            record.lost += 1
            record.above, record.missed = len(above), len(missed)

    def _has_matrix(self, parameters: set[int]) -> bool:
        """Whether a layer's weights are among them: numbers and vectors are what a loss has beside its layers."""
        return bool(parameters) and any(p.dim() > 1 for p in self.host.known.parameters() if id(p) in parameters)

    def _above(self, nodes: list[Any]) -> set[int] | None:
        """The optimizers' parameters that a graph leads to; None for a graph that is too large."""
        began, owned = time.thread_time(), self.host.known.owned()
        below = list(all_below(nodes, _MOST_NODES))
        found = {id(getattr(node, "variable", None)) for node in below} & owned
        self._allowance.spend(began)
        # A graph that was not seen to its end may reach more.
        return found if len(below) < _MOST_NODES else None

    def totals(self, tick: int) -> Iterable[Record]:
        """What was lost, by line."""
        return [record for record in self.sites.values() if record.lost or record.idle]
