"""Counts the backward passes of one line through one graph, in sampled steps: a Jacobian that is made row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchvet.probes.base.kit import EVERY_STEP, Host, Place, SiteWatcher, StepKind, frames, graphs
from torchvet.probes.base.watcher import Pass
from torchvet.probes.internals.graph_teardown import all_below
from torchvet.probes.time.real_time import TimeWatcher
from torchvet.recording.records.timing import MANY_PASSES, RepeatedPasses

_OWN = 6
"""Nodes of a row's own, at most: what picks it. Inner loops that differentiate their updates have more each time."""
_STEPS = 8
"""Steps in which a line's passes are followed."""
_GRADCHECK, _FUNCTIONAL = "autograd/gradcheck.py", "autograd/functional.py"


@dataclass
class _Group:
    """Passes of one line, one after the other, that go through most of the first one's graph."""

    nodes: set[int]
    passes: int = 1


class RepeatedPassesProbe(TimeWatcher, SiteWatcher[Place, RepeatedPasses]):
    """Graphs that are differentiated many times in a step."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._groups: dict[Place, list[_Group]] = {}

    def graph_entered(self, one: Pass) -> None:
        """A pass that keeps its graph. What torch itself checks by many is meant."""
        if not self.host.sampling or not (one.retain_graph or one.create_graph):
            return
        place = frames.user_place(3)
        known = self.sites.get(place) if place is not None else None
        # `gradcheck` differentiates row by row on purpose.
        if place is None or (known is not None and known.steps >= _STEPS) or frames.called_by_torch(_GRADCHECK):
            return
        groups = self._groups.setdefault(place, [])
        # Following a graph takes time: after the first passes it is enough that one begins as a row does.
        passes = groups[-1].passes if groups else 0
        # A few nodes from the root: rows of one output share all but what picks them.
        if passes >= MANY_PASSES and _reaches(graphs.roots_of(one.tensors), groups[-1].nodes):
            groups[-1].passes += 1
        else:
            self._follow(groups, one)
        if known is None and passes + 1 == MANY_PASSES:
            new = RepeatedPasses(place=place, is_grad=one.is_grad, by_torch=frames.called_by_torch(_FUNCTIONAL))
            self.sites[place] = new

    def _follow(self, groups: list[_Group], one: Pass) -> None:
        nodes = graphs.sequences_below(graphs.roots_of(one.tensors), one.late)
        if not nodes:  # none, or it got late before all were seen
            groups.append(_Group(set()))
            return
        # Losses of several batches may have some nodes in common: what was made of the weights alone.
        # Nodes that the last group's graph does not have.
        own = len(nodes - groups[-1].nodes) if groups else len(nodes)
        # Small graphs may have few nodes at all: at most half may be the row's own.
        if own <= min(_OWN, len(nodes) // 2):
            groups[-1].passes += 1
        else:
            groups.append(_Group(nodes))

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: its passes count where there were many through one graph."""
        for place, groups in self._groups.items():
            many = [group for group in groups if group.passes >= MANY_PASSES]
            record = self.sites.get(place)
            if many and record is not None:
                record.steps += 1
                record.graphs += len(many)
                record.passes += sum(group.passes for group in many)
                record.nodes = max(record.nodes, *(len(group.nodes) for group in many))
        self._groups.clear()

    def totals(self, tick: int) -> Any:
        """What was seen in whole steps."""
        return [record for record in self.sites.values() if record.steps]


def _reaches(roots: list[Any], known: set[int]) -> bool:
    """Whether one of the first nodes of a graph is known."""
    return any(node._sequence_nr() in known for node in all_below(roots, _OWN + 1))
