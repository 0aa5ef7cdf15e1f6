"""Watches where backward starts: does its graph reach a parameter of any optimizer?"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Literal

import torch

from torchvet.probes.base.kit import Host, Optimizer, Place, Record, SiteWatcher, frames, graphs
from torchvet.probes.internals.graph_teardown import all_below
from torchvet.probes.numerics import half
from torchvet.recording.records.numeric import ConstantTerm, LostLoss

_aten = torch.ops.aten
_ALWAYS = 16
"""Backward passes at first that are all looked at; then those of sampled steps, and others at powers of two."""
_MOST_NODES = 256
"""Nodes that are followed: a graph without parameters that is larger belongs to something that this does not know."""
Root = Literal["leaf", "other leaves", "larger leaves", "no graph"]


class LostLosses(SiteWatcher[Place, LostLoss]):
    """Losses from which no path leads to a parameter."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._passes = 0
        # Neither is needed in steps that are only counted: sampled ones and powers of two tell.
        self.passes_over = frozenset(["backward_starts", "optimizer_ended"])
        self._waiting: list[LostLoss] = []
        """Lost losses since the last optimizer step."""
        self._reached = False
        """Whether a pass since then reached a parameter."""
        self._passed_by = False
        """Whether a pass since then was not looked at."""
        self._terms: dict[Place, ConstantTerm] = {}
        self._taken: tuple[Place, weakref.ref[torch.Tensor]] | None = None
        self._sums: list[tuple[weakref.ref[torch.Tensor], Place, float]] = []

    def install(self) -> None:
        """In sampled steps, see numbers taken out of graphs and added to losses."""
        self.host.hear([_aten._local_scalar_dense.default], self._number_taken)
        self.host.hear([_aten.add.Tensor, _aten.sub.Tensor], self._added)
        self.host.hear([_aten.mul.Tensor, _aten.div.Tensor, _aten.mean.default], self._scaled)

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """Where does this pass lead?"""
        if is_grad:
            return
        self._passes += 1
        # Not a power of two.
        skipped = self._passes > _ALWAYS and self._passes & (self._passes - 1) and not self.host.sampling
        if skipped and not self._sums:
            self._passed_by = True
            return
        given = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
        roots = [t for t in given if isinstance(t, torch.Tensor)]
        self._see_terms(roots)
        if skipped or not roots:
            self._passed_by = True
            return
        owned = self.host.known.owned()
        # Without an optimizer of torch's nobody says what is to be trained.
        kind = _lost(roots, owned) if owned else None
        if kind is None:
            self._reached = True
            return
        record = self._note(roots[0], kind)
        if record is not None:
            self._waiting.append(record)

    def _note(self, root: torch.Tensor, kind: Root) -> LostLoss | None:
        # 4 skips torchvet's own frames.
        place = frames.user_place(4)
        if place is None:
            return None
        record = self.sites.get(place)
        if record is None:
            dtype = str(root.dtype).removeprefix("torch.")
            record = LostLoss(place=place, root=kind, shape=tuple(root.shape), dtype=dtype, lost=0, judged=0)
            record.parameters = sum(p.requires_grad for p in self.host.known.parameters())
            record.grad_enabled = torch.is_grad_enabled()
            self.sites[place] = record
        record.made = record.made or self.host.made_at(root)
        if kind == "no graph":
            self.host.write(record)  # backward is about to raise
        return record

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """A step was taken: had any pass before it reached something?"""
        waiting, self._waiting = self._waiting, []
        reached, self._reached = self._reached, False
        passed_by, self._passed_by = self._passed_by, False
        # A pass that was not looked at may have reached the parameters.
        if passed_by or not (waiting or reached):
            return
        # Larger leaves may be what the program trains by hand.
        reached = reached or any(record.root == "larger leaves" for record in waiting)
        for record in self.sites.values():
            record.judged += 1
        if not reached:
            for record in {id(r): r for r in waiting}.values():
                record.lost += 1
                record.optimizer = type(optimizer).__name__

    def _number_taken(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        place = self.host.line() if args[0].requires_grad and args[0].dtype.is_floating_point else None
        # The very next operator must be the sum: else the number went elsewhere.
        self._taken = (place, weakref.ref(args[0])) if place is not None else None

    def _added(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if self._taken is None or half.in_backward():
            return
        (place, source), self._taken = self._taken, None
        number = next((a for a in args[:2] if isinstance(a, float)), None)
        tensor = next((a for a in args[:2] if isinstance(a, torch.Tensor) and a.requires_grad), None)
        # On one line, and not added to the tensor that it was taken from (a straight-through estimate).
        if number is None or tensor is None or out.numel() != 1 or tensor is source() or self.host.line() != place:
            return
        self._sums.append((weakref.ref(out), place, number))

    def _scaled(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        """A loss that is divided by the number of batches, or multiplied by a loss scale, is still that sum."""
        # The last sum only: a chain of operators follows it at once.
        for ref, place, number in self._sums[-1:]:
            tensor = ref()
            if tensor is not None and any(tensor is a for a in args[:2]):
                self._sums.append((weakref.ref(out), place, number))

    def _see_terms(self, roots: list[torch.Tensor]) -> None:
        """Does the pass start from a sum that such a number went into?"""
        sums, self._sums = self._sums, []
        for ref, place, number in sums:
            root = ref()
            if root is not None and any(root is one for one in roots):
                term = self._terms.setdefault(place, ConstantTerm(place=place, term=0.0, loss=0.0, calls=0))
                term.term, term.loss = abs(number), abs(float(root.detach()))
                term.calls += 1

    def totals(self, tick: int) -> Iterable[Record]:
        """What was lost, by the line of the backward pass."""
        for record in self.sites.values():
            record.last = record in self._waiting and not (self._reached or self._passed_by)
        return [*self.sites.values(), *self._terms.values()]


def _lost(roots: list[torch.Tensor], owned: set[int]) -> Root | None:
    """What the roots are if no parameter (of an optimizer or not) can be reached from them; None where one can be, or
    where it cannot be told."""
    if all(not r.requires_grad for r in roots):
        return "no graph"
    # A parameter as the loss itself.
    if any(isinstance(r, torch.nn.Parameter) or id(r) in owned for r in roots):
        return None
    if all(r.grad_fn is None for r in roots):
        return "leaf" if all(r.numel() == 1 for r in roots) else None
    return _leaves(roots, owned)


def _leaves(roots: list[torch.Tensor], owned: set[int]) -> Root | None:
    """What kind of leaves there are below, if no optimizer has any and none is a parameter."""
    kind: Root = "other leaves"
    for count, node in enumerate(all_below(graphs.roots_of(roots), _MOST_NODES + 1)):
        # Where the backward of a custom Function leads is the program's own affair.
        if count == _MOST_NODES or isinstance(node, torch.autograd.function.BackwardCFunction):
            return None
        leaf = getattr(node, "variable", None)
        if leaf is not None and (isinstance(leaf, torch.nn.Parameter) or id(leaf) in owned):
            return None
        if leaf is not None and leaf.numel() != 1:
            kind = "larger leaves"
    return kind
