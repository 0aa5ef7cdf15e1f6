"""Watches forward passes outside training: do they build an autograd graph that nobody goes back through?"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torchvet.probes.base.callers import whereabouts
from torchvet.probes.base.kit import Host, Place, StepKind, Unchecked, Watcher, frames, graphs
from torchvet.probes.base.watcher import Pass
from torchvet.probes.internals.saved import saved_tensors
from torchvet.probes.objects.containers import tensors_in
from torchvet.recording.records.training import EvaluationForward

# Each has its graph's numbers: a program that never goes backward must not fill memory.
_MOST_PENDING = 64
_FIRST_LOOK, _SECOND_LOOK = 3, 5
"""Graphs of one evaluation that are alive together when names are counted: one more than a loop's variables keep."""
_MOST_LOOKS = 6


@dataclass
class _Pass:
    place: Place
    module: str
    training_mode: bool
    root: int
    unused: dict[int, int]
    """Bytes of each storage that the graph saved and no backward has gone through, by key."""
    tick: int
    nodes: Collection[int] = ()
    """Sequence numbers of the graph's nodes."""
    saved: Collection[weakref.ref[Any]] = ()
    """The largest of the storages. Once they are gone, so is the graph."""
    kind: StepKind | None = None
    entered: bool = False
    """Whether a backward went through a part of the graph: from a hook's output, say, and not from the module's."""
    way: int = 0
    """By which calls it was reached, hashed."""
    passed_over: bool = False
    """Whether a backward has begun since that goes through other graphs: until then the losses of many batches may yet
    go backward together."""

    @property
    def freed(self) -> bool:
        return all(ref() is None for ref in self.saved)

    def enter(self, visited: dict[int, graphs.Node]) -> None:
        """A backward goes through these nodes: what those of this graph saved was needed."""
        for number in visited.keys() & self.nodes:
            self.entered = True
            for tensor in saved_tensors(visited[number]):
                for storage in graphs.storages_of(tensor):
                    self.unused.pop(storage._cdata, None)


class EvaluationProbe(Watcher):
    """Graphs that evaluation builds. Passes are judged once their graph is used or gone."""

    always = True

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._pending: list[_Pass] = []
        self._uses: dict[tuple[Place, bool], EvaluationForward] = {}
        self._trained: set[int] = set()
        """Ways by which training passes are reached: what ends there without a backward is a batch left out."""
        self._unused: dict[tuple[Place, bool], set[int]] = {}
        """By use the ways of its passes that no backward went through."""
        self._kept: list[weakref.ref[Any]] = []
        """The largest saved storage of each pass of the evaluation that is under way."""
        self._fresh = False
        self._looks = 0
        self._late = 0
        self.stretch = 1
        self._peak = 0

    def wants_modules(self) -> bool:
        """Whether the evaluation under way has graphs to follow: its next passes are worth hearing of."""
        return bool(self._kept) and self._looks < _MOST_LOOKS and self.kept < _SECOND_LOOK

    def waits(self) -> bool:
        """Whether a backward pass means anything to what was seen."""
        return bool(self._pending or self._kept)

    @property
    def kept(self) -> int:
        """Passes of the evaluation under way whose graph is alive."""
        return sum(1 for ref in self._kept if ref() is not None)

    def due(self) -> int:
        """How many graphs are alive, where the last pass made that an occasion to count names; else 0."""
        fresh, self._fresh = self._fresh, False
        kept = self.kept if fresh else 0
        # A census each time: two in an evaluation show growth between them.
        if kept not in (_FIRST_LOOK, _SECOND_LOOK) or self._looks >= _MOST_LOOKS:
            return 0
        self._looks += 1
        return kept

    def _over(self) -> None:
        if self._kept:
            self._kept = []
            self.stretch += 1

    def forward_ended(self, module: torch.nn.Module, output: Any) -> None:
        """See `Watcher`. A pass is noted when grad mode is on and the output has a graph."""
        if not torch.is_grad_enabled():
            return
        # Nothing is left of the budget: the pass is counted as not followed.
        seconds = self.host.graph_seconds()
        if seconds <= 0:
            self._late += not module.training
        elif len(self._pending) < _MOST_PENDING:
            with self.host.looking("graphs that evaluation builds", "graphs"):
                self._note(module, output, graphs.within(seconds))
        passes = self.due()
        if passes:
            self.host.tell("graphs_piled", self.stretch, passes, "evaluation")

    def _note(self, module: torch.nn.Module, output: Any, late: graphs.Late) -> None:
        roots = [t.grad_fn for t in tensors_in(output, 3) if t.grad_fn is not None]
        place = frames.user_place(3)
        if not roots or place is None:
            return
        nodes: graphs.Seen = set()
        # Without parameters: a frozen model's graph saves nothing of its own.
        reach = graphs.walk(roots, nodes, set(self.host.known.storages()), late)
        self._late += not (reach.complete or module.training)
        if not reach.saved:
            return
        # By their death it is known that the graph has gone.
        largest = sorted(reach.saved.values(), key=lambda s: -s.nbytes())[:3]
        if not module.training:
            self._kept.append(weakref.ref(largest[0]))
            self._fresh = True
        unused = {key: s.nbytes() for key, s in reach.saved.items()}
        number, tick = roots[0]._sequence_nr(), self.host.tick
        one = _Pass(place, type(module).__name__, module.training, number, unused, tick)
        # A number, so that no code object is kept.
        one.way = hash(tuple([(code, instruction) for _, code, instruction in whereabouts(3)]))
        one.nodes, one.saved = set(graphs.numbered(nodes)), [weakref.ref(s) for s in largest]
        self._pending.append(one)

    def graph_entered(self, one: Pass) -> None:
        """Graphs that this pass goes through were needed, or that part of them which it goes through. Where it is too
        late to see which, none is judged."""
        self._over()
        if not self._pending:
            return
        visited = graphs.numbered_below(graphs.roots_of(one.tensors), one.late)
        if visited is None:
            self._late += sum(not pending.training_mode for pending in self._pending)
            self._pending.clear()
            return
        # By sequence numbers: a pass is used if its uppermost node is gone through.
        for used in [p for p in self._pending if p.root in visited]:
            self._pending.remove(used)
            # Adversarial examples and saliency go backward through a model in evaluation mode.
            if used.training_mode:
                self._trained.add(used.way)
            else:
                self._use(used).backwarded += 1
        for pending in self._pending:
            # Perceptual losses and Grad-CAM keep inner outputs by hooks, and drop the module's own.
            pending.enter(visited)
            pending.passed_over = pending.kind == "evaluation"

    def last_look(self, how: str, error: BaseException | None) -> None:
        """See `Watcher`."""
        self._judge(self.host.clock.level, self.host.tick, final=True)

    def settle(self, tick: int, kind: StepKind) -> None:
        """See `Watcher`."""
        self._judge(kind, tick)

    def _judge(self, kind: StepKind, tick: int, final: bool = False) -> None:
        """A step ended: passes whose graph is gone unused, or was kept while others were used, are counted."""
        if kind != "evaluation":
            self._over()
        for one in list(self._pending):
            if one.kind is None:
                one.kind = kind
            outside = one.kind == "evaluation" or not one.training_mode
            # Training went on over it; or the program ended long after.
            kept = (one.passed_over and kind != "evaluation") or (final and tick - one.tick >= 3)
            if one.freed or kept:
                self._pending.remove(one)
                if outside:
                    self._count(one)

    def _use(self, one: _Pass) -> EvaluationForward:
        new = EvaluationForward(place=one.place, module=one.module, calls=0, training_mode=one.training_mode)
        return self._uses.setdefault((one.place, one.training_mode), new)

    def _count(self, one: _Pass) -> None:
        """A pass whose graph is gone, or is kept, and was not used as a whole."""
        use, unused = self._use(one), sum(one.unused.values())
        self._unused.setdefault((one.place, one.training_mode), set()).add(one.way)
        if one.entered:
            use.entered += 1
            use.left = max(use.left, unused)
        else:
            use.calls += 1
            use.graph = max(use.graph, unused)

    def window_closed(self, tick: int, peak: int, cohort: Any, final: bool) -> None:
        """See `Watcher`."""
        self._peak = max(self._peak, peak)

    def totals(self, tick: int) -> list[EvaluationForward]:
        """See `Watcher`."""
        for key, use in self._uses.items():
            use.peak = self._peak
            if use.training_mode:
                # In train mode a pass of a way that is usually trained on is a batch that was left
                # out.
                use.backwarded = int(self._unused.get(key, set()) <= self._trained)
        return [use for use in self._uses.values() if use.calls or use.entered]

    def unchecked(self) -> Iterator[Unchecked]:
        """Says so where passes in evaluation mode were not followed to their end."""
        if self._late:
            yield Unchecked(
                check="graphs that evaluation builds",
                reason=f"following those of {self._late} passes would have taken more than its share of the run's time",
                graphs=True,
            )
