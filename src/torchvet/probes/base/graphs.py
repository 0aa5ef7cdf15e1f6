"""Walks autograd graphs: what they keep alive, which Python's referrers do not show.

Saved tensors are read without running hooks of anybody's: see `saved.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from torchvet.probes.base.deadline import Deadline
from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.internals import graph_teardown
from torchvet.probes.internals.saved import forget_types as forget_types
from torchvet.probes.internals.saved import saved_tensors, tensors_in

Node = Any
"""An autograd node: torch has no public type for all of them."""
Late = Callable[[], bool]
"""Says whether the time for looking is over."""


_on = True


def name_of(node: Node) -> str:
    """What torch calls a node. Asked of its type: a custom function's `ctx` is its node, and may have a `name` of the
    program's."""
    return type(node).name(node)  # type: ignore[no-any-return]


def switch(on: bool) -> None:
    """Follow graphs, or none: walks find nothing then, and questions have no answer."""
    global _on
    _on = on


def followed() -> bool:
    """Whether graphs are followed."""
    return _on


def never() -> bool:
    """No limit of time."""
    return False


def within(seconds: float) -> Late:
    """Late once this thread has worked for these seconds."""
    return Deadline(seconds).passed


ACCUMULATE = "torch::autograd::AccumulateGrad"
"""What the nodes of leaves are called: they are as old as the leaf."""
# What torch gives nodes that it does not number (leaves): the largest unsigned 64-bit number.
_NO_SEQUENCE = (1 << 64) - 1


def ctx_tensors(node: Node) -> Iterator[torch.Tensor]:
    """The tensors that a custom Function keeps as attributes of its `ctx`, which backward does not free."""
    # Only Python's Functions have attributes. `vars` runs no property of the program's.
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        for value in vars(node).values():
            yield from tensors_in(value)


def _leaf(node: Node) -> Iterator[torch.Tensor]:
    """The leaf that a node accumulates into, and its gradient: they live as long as the node does."""
    # Only `AccumulateGrad` nodes have this attribute.
    leaf = getattr(node, "variable", None)
    if leaf is not None:
        yield leaf
        gradient = gradient_of(leaf)
        if gradient is not None:
            yield gradient


Seen = set[Node]
"""Nodes that walks went through."""


@dataclass
class Reach:
    """What one walk newly reached: storages by key (saved by nodes, kept on a `ctx`, of leaves and their gradients)."""

    saved: dict[int, torch.UntypedStorage] = field(default_factory=dict)
    ctx: dict[int, torch.UntypedStorage] = field(default_factory=dict)
    leaves: dict[int, torch.UntypedStorage] = field(default_factory=dict)
    nodes: int = 0
    complete: bool = True
    lowest: int = 0
    """The lowest number of a node that was walked through."""
    met: bool = False
    """Whether the walk came upon the node that it was to stay above."""

    @property
    def saved_bytes(self) -> int:
        """Bytes that the nodes saved."""
        return sum(s.nbytes() for s in self.saved.values())


def storages_of(t: torch.Tensor) -> Iterator[torch.UntypedStorage]:
    """The storages behind a tensor: one for a strided tensor, its parts for sparse and wrapper tensors."""
    # The first test spares plain tensors the layout's lookup, which is a call into C++.
    if type(t) is torch.Tensor or t.layout is torch.strided:
        # torch's own protocol of wrapper subclasses (DTensor, quantized tensors): the names of the inner
        # tensors.
        flatten = getattr(t, "__tensor_flatten__", None)
        # A wrapper subclass shows a storage without memory: its inner tensors have the bytes.
        if flatten is not None and type(t) is not torch.nn.Parameter:
            # A DTensor counts its mesh of devices among its parts.
            for part in (getattr(t, name) for name in flatten()[0]):
                if isinstance(part, torch.Tensor):
                    yield from storages_of(part)
            return
        try:
            storage = t.untyped_storage()
        except (NotImplementedError, RuntimeError):
            parts = _sparse_parts(t)
        else:
            # A meta storage has a size and takes no memory.
            if storage.device.type != "meta":
                yield storage
            return
    else:
        parts = _sparse_parts(t)
    for part in parts:
        yield from storages_of(part)


def _sparse_parts(t: torch.Tensor) -> list[torch.Tensor]:
    if t.layout is torch.sparse_coo:
        return [t._indices(), t._values()]
    if t.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [t.crow_indices(), t.col_indices(), t.values()]
    if t.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [t.ccol_indices(), t.row_indices(), t.values()]
    return []


def walk(roots: list[Node], seen: Seen, claimed: set[int], late: Late, above: int = -1) -> Reach:
    """Follow graphs from their roots through nodes not in `seen`, claiming storages not in `claimed`.

    Both are updated, so that walking one root after another counts every node and storage once. Nodes that are not
    numbered `above` a number are left alone: they were there before the node of that number was made.
    """
    reach = Reach(lowest=_NO_SEQUENCE)
    stack = list(roots) if _on else []
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        number = node._sequence_nr()
        # Leaves have the highest number and are never cut off here: they are shared by graphs of all ages.
        if number <= above:
            reach.met |= number == above
            continue
        seen.add(node)
        reach.nodes += 1
        reach.lowest = min(reach.lowest, number)
        # Every 1,024 nodes: reading the clock at each would cost as much as the walk.
        if not reach.nodes & 1023 and late():
            reach.complete = False
            return reach
        kept = ((reach.saved, saved_tensors(node)), (reach.leaves, _leaf(node)), (reach.ctx, ctx_tensors(node)))
        for found, tensors in kept:
            for tensor in tensors:
                for storage in storages_of(tensor):
                    key = storage._cdata
                    if key not in claimed:
                        # The first name that reaches a storage gets its bytes. The order of
                        # the roots is thus the order of the credits.
                        claimed.add(key)
                        found[key] = storage
                # What backward saved may itself belong to a deeper graph (create_graph, stored outputs).
                # A loop over this walk's own results: without it a penalty's graph below a saved
                # output has no name.
                if tensor.grad_fn is not None:
                    stack.append(tensor.grad_fn)
        # Not `next_functions`: torch frees nodes that Python has seen by recursion, and a chain of 50,000 would
        # overflow the stack without the breakers that `nodes_below` sets.
        stack.extend(graph_teardown.nodes_below(node))
    return reach


def sequences_below(roots: list[Node], late: Late = never) -> set[int] | None:
    """Sequence numbers of all nodes at and below these; they outlive the nodes and hold nothing. None where it got late
    before all were seen."""
    below = numbered_below(roots, late)
    return None if below is None else set(below)


def numbered_below(roots: list[Node], late: Late = never) -> dict[int, Node] | None:
    """The nodes at and below these by sequence number, leaves left out. None where it got late before all were seen."""
    if not _on:
        return None
    seen: Seen = set()
    stack = list(roots)
    while stack:
        if not len(seen) & 1023 and late():
            return None
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(graph_teardown.nodes_below(node))
    return numbered(seen)


def numbered(nodes: Iterable[Node]) -> dict[int, Node]:
    """Nodes by sequence number, without those of leaves, which have none of their own."""
    found = {node._sequence_nr(): node for node in nodes}
    found.pop(_NO_SEQUENCE, None)
    return found


def ops_between(root: Node, sequence: int, late: Late = never) -> list[str] | None:
    """Names of the operators on all ways from a node down to the one with a sequence number, or None where there is
    no way (or it got late): how a value came from its value of before. Nodes are numbered as they are made, so that
    everything between has a higher number than the lower end, and what is older need not be walked.
    """
    if not _on:
        return None
    above: dict[Node, list[Node]] = {root: []}
    queue = [root]
    target: Node = None
    # The list grows while it is gone through: a breadth-first walk without a second list.
    for count, node in enumerate(queue, start=1):
        if not count & 1023 and late():
            return None
        for following in graph_teardown.nodes_below(node):
            # Leaves lead nowhere, and their number is the highest of all: by that they would be walked.
            if name_of(following) == ACCUMULATE or following._sequence_nr() < sequence:
                continue
            if following in above:
                above[following].append(node)
                continue
            above[following] = [node]
            # Not put in the queue: what is below the target is older and no way between the two.
            if following._sequence_nr() == sequence:
                target = following
            else:
                queue.append(following)
    return None if target is None else _names_above(target, above)


def _names_above(target: Node, above: dict[Node, list[Node]]) -> list[str]:
    """Operator names of everything that leads to a node, each once, the nearest last."""
    seen = {target}
    queue = [target]
    for node in queue:
        for higher in above[node]:
            if higher not in seen:
                seen.add(higher)
                queue.append(higher)
    return list(dict.fromkeys(name_of(node) for node in reversed(queue[1:])))


def result_sizes(node: Node) -> tuple[int, ...] | None:
    """The sizes of what a node's result was, or its leaf is; None where torch does not say."""
    if name_of(node) == ACCUMULATE:
        # A leaf's node has no metadata of its own.
        return tuple(node.variable.shape)
    # Private. Without it no node counts as a single number.
    metadata = getattr(node, "_input_metadata", None)
    return tuple(metadata[0].shape) if metadata else None


def result_numel(node: Node) -> int:
    """How many numbers that were; 0 where torch does not say."""
    sizes = result_sizes(node)
    return 0 if sizes is None else math.prod(sizes)


def roots_of(tensors: Any) -> list[Any]:
    """The nodes that made what is given to a backward call: one tensor, or several."""
    items = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
    return [t.grad_fn for t in items if isinstance(t, torch.Tensor) and t.grad_fn is not None]
