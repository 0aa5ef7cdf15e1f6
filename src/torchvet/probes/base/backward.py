"""Watches calls of backward that keep or extend the graph: who asked, and whether anybody went through it again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from torchvet.probes.base import frames, graphs
from torchvet.probes.base.watcher import Host, Pass, Watcher
from torchvet.recording.records.base import Place, StepKind
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


class BackwardProbe(Watcher):
    """Graphs that are kept after a backward pass. They are remembered by sequence numbers only."""

    always = True

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        # The bus does not even call what is ignored: a program that keeps no graph pays nothing at the end of
        # its passes.
        self.ignored = frozenset(["backward_ended"])  # until a graph is kept
        self._uses: dict[tuple[Place, Literal["retain_graph", "create_graph"]], _Use] = {}
        self._pending: list[_Pending] = []
        self._after: _Pending | None = None
        self._peak = 0

    def graph_entered(self, one: Pass) -> None:
        """See `Watcher`. Where it is too late to follow the pass's graph nothing is judged by it."""
        self._after = None
        roots = graphs.roots_of(one.tensors)
        # Before this call's own flag is looked at: the second pass through a kept graph is usually a plain
        # `backward()`.
        if self._pending:
            self._settle(roots, one.late)
        flag = _flag(one)
        if flag is None:
            return
        # 3 skips torchvet's own frames, which are no place of the program's anyway.
        place = frames.user_place(3)
        if place is None:
            return
        use = self._uses.setdefault((place, flag), _Use())
        use.calls += 1
        # Following a graph takes time: the first calls are judged, then those whose number is a power of two.
        judge = use.calls <= _JUDGED_FIRST or not use.calls & (use.calls - 1)
        # `create_graph` extends the graph on purpose. That it was called is the fact; whether it is used
        # again says nothing.
        if flag != "retain_graph" or not judge or not roots:
            return
        sequences = graphs.sequences_below(roots, one.late)
        if sequences is None:
            use.late += 1
        else:
            # Only now is `backward_ended` worth a call: see `ignored` above.
            self.heed()
            # The roots are held until the pass ends: what the kept graph still saves can be measured only then.
            self._after = _Pending(use, sequences, self.host.tick, roots)

    def backward_failed(self) -> None:
        """See `Watcher`."""
        self._after = None

    def waits(self) -> bool:
        """Whether the next pass may go through a graph that was kept."""
        return bool(self._pending) or self._after is not None

    def backward_ended(self, is_grad: bool) -> None:
        """Count what a graph that was kept still saves."""
        pending, self._after = self._after, None
        if pending is not None:
            with self.host.looking("graphs that are kept after a backward pass", "graphs"):
                self._measure(pending, graphs.within(self.host.graph_seconds()))

    def _measure(self, pending: _Pending, late: graphs.Late) -> None:
        reach = graphs.walk(pending.roots, set(), set(self.host.known.storages()), late)
        pending.use.held = max(pending.use.held, reach.saved_bytes)
        # Only the numbers stay. With the nodes this probe would itself hold the graph that it reports as
        # held.
        pending.roots = []
        # A sum that was cut short would understate what is held, and a graph that is not in `_pending` is
        # judged unused by nobody.
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

    def window_closed(self, tick: int, peak: int, cohort: Any, final: bool) -> None:
        """See `Watcher`."""
        self._peak = max(self._peak, peak)

    def settle(self, tick: int, kind: StepKind) -> None:
        """A step ended: retained graphs that waited long enough were not used again."""
        for pending in list(self._pending):
            # The pass of the next step may go through it (truncated backpropagation, a penalty of the
            # step before).
            if tick - pending.tick > _PATIENCE:
                pending.use.judged += 1
                self._pending.remove(pending)

    def totals(self, tick: int) -> list[BackwardUse]:
        """See `Watcher`."""
        return [
            BackwardUse(
                place=place, flag=flag, calls=u.calls, judged=u.judged, reused=u.reused, held=u.held, peak=self._peak
            )
            for (place, flag), u in self._uses.items()
        ]

    def unchecked(self) -> Iterator[Unchecked]:
        """Lines whose graphs could not be followed in time often enough to judge them."""
        for (place, flag), use in self._uses.items():
            # One that was seen to be used again needs no more judging: it was kept for a reason.
            if flag == "retain_graph" and use.late and use.judged < ENOUGH_JUDGED and not use.reused:
                yield Unchecked(
                    check=f"whether graphs kept by retain_graph in line {place.line} were needed",
                    reason="following them would have taken more than its share of the run's time",
                    graphs=True,
                )


def _flag(one: Pass) -> Literal["retain_graph", "create_graph"] | None:
    """Which argument of the call keeps the graph."""
    if one.create_graph:
        # `autograd.grad(create_graph=True)` is how gradient penalties are written: nothing to see.
        return None if one.is_grad else "create_graph"
    return "retain_graph" if one.retain_graph else None
