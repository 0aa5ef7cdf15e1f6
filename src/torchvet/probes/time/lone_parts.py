"""Finds the parts of an autograd graph that lead to the parameters of one optimizer alone."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field

from torchvet.probes.base import graphs
from torchvet.probes.base.graphs import Node
from torchvet.probes.base.kit import Optimizer
from torchvet.probes.internals.graph_teardown import all_below, nodes_below

_MOST_NODES = 8192
"""Nodes of a graph that are gone through; what a larger one leads to is not known."""
_OTHER = 1
"""The bit of leaves that no optimizer has, or several."""
_OPAQUE = "CheckpointFunctionBackward"
"""Leads to parameters that the graph does not show."""
_ROOT = -1


@dataclass
class Part:
    """The nodes above an optimizer's parameters that lead to nothing else."""

    optimizer: weakref.ref[Optimizer]
    numbers: set[int] = field(default_factory=set)
    """Of the nodes."""
    leaves: set[int] = field(default_factory=set)
    """The identities of the parameters."""
    tops: set[tuple[int, int]] = field(default_factory=set)
    """Its uppermost nodes, each with one that it enters: -1 where the pass begins from it."""
    seconds: float = 0.0


def is_leaf(node: Node) -> bool:
    """Whether a node accumulates into a leaf."""
    return graphs.name_of(node) == graphs.ACCUMULATE


def parts_of(roots: list[Node], optimizers: Iterable[Optimizer]) -> list[Part] | None:
    """The parts of a graph that leads to several optimizers' parameters. None where it is too large.

    A part is one that `detach()` could cut off: none of its optimizer's parameters enters elsewhere.
    """
    found = list(all_below(roots, _MOST_NODES))
    if len(found) >= _MOST_NODES or not graphs.followed():
        return None
    bits = {1 << number: optimizer for number, optimizer in enumerate(optimizers, start=1)}
    below = {node: nodes_below(node) for node in found}
    masks = _masks(found, below, _owners(bits))
    reached = {bit for bit in bits if any(masks[root] & bit for root in roots)}
    # What leads to one optimizer alone is that one's own pass.
    if len(reached) < 2:
        return []
    parts = {bit: Part(weakref.ref(bits[bit])) for bit in reached}
    _fill(found, masks, parts)
    for node in found:
        _enter(node, below[node], masks, parts)
    for root in roots:
        if masks[root] in parts:
            parts[masks[root]].tops.add((root._sequence_nr(), _ROOT))
    return [part for part in parts.values() if part.tops]


def _fill(found: list[Node], masks: dict[Node, int], parts: dict[int, Part]) -> None:
    """Put each node into the part that it is of."""
    for node in found:
        part = parts.get(masks[node])
        if part is not None and is_leaf(node):
            part.leaves.add(id(node.variable))
        elif part is not None:
            part.numbers.add(node._sequence_nr())


def _enter(node: Node, below: list[Node], masks: dict[Node, int], parts: dict[int, Part]) -> None:
    """Note which parts a node is the first above."""
    for child in below:
        bit = masks[child]
        if bit == masks[node] or bit not in parts:
            continue
        if is_leaf(child):
            # A parameter itself: the node is one of the layers that the pass goes through.
            del parts[bit]
        else:
            parts[bit].tops.add((child._sequence_nr(), node._sequence_nr()))


def _owners(bits: dict[int, Optimizer]) -> dict[int, int]:
    """The bit of each parameter, by identity."""
    owners: dict[int, int] = {}
    for bit, optimizer in bits.items():
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            owners[id(parameter)] = _OTHER if owners.get(id(parameter), bit) != bit else bit
    return owners


def _masks(found: list[Node], below: dict[Node, list[Node]], owners: dict[int, int]) -> dict[Node, int]:
    """Whose leaves each node leads to, as bits."""
    masks = {node: owners.get(id(node.variable), _OTHER) for node in found if is_leaf(node)}
    # Nodes are numbered as they are made: what is below has a lower number.
    for node in sorted((node for node in found if node not in masks), key=lambda one: one._sequence_nr()):
        mask = _OTHER if graphs.name_of(node) == _OPAQUE else 0
        for child in below[node]:
            mask |= masks.get(child, _OTHER)
        masks[node] = mask
    return masks
