"""Watches calls of backward that keep or extend the graph: who asked, and whether anybody went through it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from torchvet.probes.base import frames, graphs
from torchvet.recording.records.base import Place
from torchvet.recording.records.training import ENOUGH_JUDGED, BackwardUse, Unchecked

_JUDGED_FIRST = 6
_PATIENCE = 2
"""Boundaries to wait for a second pass through a retained graph before calling it unused."""


@dataclass
class _Use:
    calls: int = 0
    judged: int = 0
    reused: int = 0
    held: int = 0
    late: int = 0
    """Calls whose graph there was no time left to follow."""


@dataclass
class _Pending:
    use: _Use
    sequences: set[int]
    tick: int
    roots: list[Any] = field(default_factory=list)


class BackwardProbe:
    """One for the session. Graphs are remembered by sequence numbers only."""

    def __init__(self) -> None:
        self._uses: dict[tuple[Place, Literal["retain_graph", "create_graph"]], _Use] = {}
        self._pending: list[_Pending] = []
        self._after: _Pending | None = None
        self.peak = 0
        self.creates_graph = False

    def starts(
        self, tensors: Any, retain: bool, create: bool, is_grad: bool, tick: int, late: graphs.Late = graphs.never
    ) -> None:
        """A backward (or `autograd.grad`) begins. Where it is too late to follow its graph nothing is judged by it."""
        self._after = None
        roots = [t.grad_fn for t in _flat(tensors) if t.grad_fn is not None]
        if self._pending:
            self._settle(roots, late)
        # `autograd.grad(create_graph=True)` is how gradient penalties are written: nothing to see.
        flag: Literal["retain_graph", "create_graph"] | None = (
            "create_graph" if create and not is_grad else "retain_graph" if retain and not create else None
        )
        if flag is None:
            return
        self.creates_graph = self.creates_graph or flag == "create_graph"
        place = frames.user_place(3)
        if place is None:
            return
        use = self._uses.setdefault((place, flag), _Use())
        use.calls += 1
        judge = use.calls <= _JUDGED_FIRST or not use.calls & (use.calls - 1)
        if flag != "retain_graph" or not judge or not roots:
            return
        sequences = graphs.sequences_below(roots, late)
        if sequences is None:
            use.late += 1
        else:
            self._after = _Pending(use, sequences, tick, roots)

    def failed(self) -> None:
        """The pass that began last raised: its graph is nobody's business here."""
        self._after = None

    @property
    def waiting(self) -> bool:
        """Whether the next pass has to be told of whatever it is: to see if it goes through a graph that was kept."""
        return bool(self._pending) or self._after is not None

    @property
    def wants_known(self) -> bool:
        """Whether `ended` will count bytes."""
        return self._after is not None

    def ended(self, known: Iterable[int] = (), late: graphs.Late = graphs.never) -> None:
        """The pass that began last is over: count what the retained graph still saves, `known` storages left out."""
        pending = self._after
        if pending is None:
            return
        self._after = None
        reach = graphs.walk(pending.roots, set(), set(known), late)
        pending.use.held = max(pending.use.held, reach.saved_bytes)
        pending.roots = []
        if reach.complete:
            self._pending.append(pending)
        else:
            pending.use.late += 1

    def _settle(self, roots: list[Any], late: graphs.Late) -> None:
        """Another pass begins: does it go through a graph that was retained? Where nobody can tell, none is judged."""
        visited = graphs.sequences_below(roots, late)
        if visited is None:
            for pending in self._pending:
                pending.use.late += 1
            self._pending.clear()
            return
        for pending in list(self._pending):
            if not visited.isdisjoint(pending.sequences):
                pending.use.reused += 1
                pending.use.judged += 1
                self._pending.remove(pending)

    def boundary(self, tick: int) -> None:
        """A step ended: retained graphs that waited long enough were not used again."""
        for pending in list(self._pending):
            if tick - pending.tick > _PATIENCE:
                pending.use.judged += 1
                self._pending.remove(pending)

    def records(self) -> list[BackwardUse]:
        """The running totals."""
        return [
            BackwardUse(
                place=place, flag=flag, calls=u.calls, judged=u.judged, reused=u.reused, held=u.held, peak=self.peak
            )
            for (place, flag), u in self._uses.items()
        ]

    def unchecked(self) -> Iterator[Unchecked]:
        """Lines whose graphs could not be followed in time often enough to judge them."""
        for (place, flag), use in self._uses.items():
            if flag == "retain_graph" and use.late and use.judged < ENOUGH_JUDGED and not use.reused:
                yield Unchecked(
                    check=f"whether graphs kept by retain_graph in line {place.line} were needed",
                    reason="following them would have taken more than its share of the run's time",
                    graphs=True,
                )


def _flat(tensors: Any) -> list[torch.Tensor]:
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    return [t for t in tensors if isinstance(t, torch.Tensor)] if isinstance(tensors, (list, tuple)) else []
