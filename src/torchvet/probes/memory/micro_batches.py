"""Losses of several micro-batches that go backward together: their graphs are alive at once."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from torchvet.probes.base.kit import EVERY_STEP, Host, Place, SiteWatcher, frames, graphs
from torchvet.probes.internals import graph_teardown
from torchvet.probes.internals.saved import saved_tensors
from torchvet.recording.records.training import SummedLosses

_SECONDS = 0.05
"""For one graph."""
_MOST_CALLS = 8
"""Sampled backward calls that are followed."""
_SUMS = frozenset(
    f"{name}Backward{number}"
    for name in ("Add", "Sub", "Div", "Mul", "Neg", "Sum", "Mean", "Stack", "Cat", "Unsqueeze", "Squeeze", "ToCopy")
    for number in range(3)
)
"""A sum of losses, its mean, and each of them multiplied by a number: gradients add up in the same way."""


class MicroBatches(SiteWatcher[Place, SummedLosses]):
    """Losses that are summed over several batches before one backward pass."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._calls = 0

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """Is this the sum of losses that could have gone backward one by one?"""
        # A gradient penalty's pass sums nothing that could go one by one.
        if is_grad or self._calls >= _MOST_CALLS or not self.host.sampling:
            return
        roots = graphs.roots_of(tensors)
        # 4 skips torchvet's own frames, which are no place anyway.
        place = frames.user_place(4)
        if len(roots) != 1 or place is None:
            return
        self._calls += 1
        # Parameters are in the graphs of all losses: they are no loss's share.
        known = set(self.host.known.storages())
        parts = _independent(_terms(roots[0]), known, graphs.within(_SECONDS))
        alike = _alike(parts or [])
        # One graph cannot be split.
        if len(alike) < 2 or not _one_after_the_other(alike):
            return
        saved = [part.bytes for part in alike]
        record = self.sites.setdefault(place, SummedLosses(place=place, parts=0, saved=0, largest=0, calls=0))
        record.calls += 1
        # The largest step decides the peak.
        if sum(saved) > record.saved:
            record.parts, record.saved, record.largest = len(alike), sum(saved), max(saved)


@dataclass
class _Part:
    """The graph of one loss, or of several that have nodes in common."""

    bytes: int = 0
    first: int = 1 << 62
    last: int = 0
    """Numbers of its nodes, in the order in which they were made."""
    nodes: set[Any] = field(default_factory=set)

    @property
    def shape(self) -> frozenset[tuple[str, int]]:
        """Its operators, each with how often: graphs of micro-batches have the same."""
        return frozenset(Counter(graphs.name_of(node) for node in self.nodes).items())


def _terms(root: Any) -> dict[Any, int]:
    """The nodes of the losses that a node sums up, below additions, means and factors of single numbers; with the
    number of the last node that belongs to one loss alone: the factor of a rollout's term comes after all passes."""
    terms: dict[Any, int] = {}
    waiting = [(root, 0)]
    while waiting:
        node, last = waiting.pop()
        below = graph_teardown.nodes_below(node)
        # A product of two that learn is no sum.
        # Gradients of a sum are the sum of gradients: only such nodes may be split into passes of their own.
        linear = graphs.name_of(node) in _SUMS and (len(below) == 1 or graphs.name_of(node)[:3] not in ("Mul", "Div"))
        if linear and below and _of_numbers(node):
            # A node with one input belongs to one loss; a sum belongs to all, and dates none of them.
            last = max(last, node._sequence_nr()) if len(below) == 1 else 0
            waiting.extend((one, last) for one in below)
        elif graphs.name_of(node) != graphs.ACCUMULATE:
            terms[node] = max(last, terms.get(node, 0))
    return terms


def _of_numbers(node: Any) -> bool:
    """Whether what the node summed up was single numbers: those below have them for results."""
    return all(
        graphs.result_numel(below) == 1
        for below in graph_teardown.nodes_below(node)
        if graphs.name_of(below).rstrip("0123456789") not in ("StackBackward", "CatBackward")
    )


def _independent(terms: dict[Any, int], known: set[int], late: graphs.Late) -> list[_Part] | None:
    """The terms' graphs, those that have nodes in common made one. None where following them took too long."""
    parts: list[_Part] = []
    owner: dict[Any, _Part] = {}
    claimed = set(known)
    for term, last in terms.items():
        part = _Part(last=last)
        waiting = [term]
        while waiting:
            node = waiting.pop()
            # Losses of one model meet at its parameters in any case: that does not make their graphs one.
            if node in part.nodes or graphs.name_of(node) == graphs.ACCUMULATE:
                continue
            other = owner.get(node)
            # They share activations: one pass is needed for both.
            if other is not None and other is not part:
                part = _joined(part, other, owner)
                parts = [p for p in parts if p is not other]
                continue
            part.nodes.add(node)
            owner[node] = part
            _measure(part, node, claimed)
            # Every 256 nodes: measuring one takes longer than walking over one.
            if not len(owner) & 255 and late():
                return None
            waiting.extend(graph_teardown.nodes_below(node))
        if part not in parts:
            parts.append(part)
    return [part for part in parts if part.bytes]


def _joined(one: _Part, other: _Part, owner: dict[Any, _Part]) -> _Part:
    one.nodes |= other.nodes
    one.bytes += other.bytes
    one.first, one.last = min(one.first, other.first), max(one.last, other.last)
    owner.update(dict.fromkeys(other.nodes, one))
    return one


def _measure(part: _Part, node: Any, claimed: set[int]) -> None:
    number = node._sequence_nr()
    part.first, part.last = min(part.first, number), max(part.last, number)
    for tensor in saved_tensors(node):
        for storage in graphs.storages_of(tensor):
            if storage._cdata not in claimed:
                claimed.add(storage._cdata)
                part.bytes += storage.nbytes()


def _alike(parts: list[_Part]) -> list[_Part]:
    """The most parts that do the same: a discriminator's losses and its penalty are no micro-batches."""
    groups: dict[frozenset[tuple[str, int]], list[_Part]] = {}
    for part in parts:
        # By operators and counts: exact graphs of two batches differ in sizes alone.
        groups.setdefault(part.shape, []).append(part)
    return max(groups.values(), key=len, default=[])


def _one_after_the_other(parts: list[_Part]) -> bool:
    """Whether each graph was complete before the next was begun. Losses of a rollout are not: what their terms are
    multiplied by is known at its end only."""
    ordered = sorted(parts, key=lambda part: part.first)
    return all(before.last < after.first for before, after in itertools.pairwise(ordered))
