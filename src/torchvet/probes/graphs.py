"""Walks autograd graphs: what they keep alive, which Python's referrers do not show.

Saved tensors are read from the raw slots (`_raw_saved_*`), never unpacked: unpacking under activation checkpointing
would run the forward pass again. A slot that backward has freed raises, or is None: it holds nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

Node = Any
"""An autograd node: torch has no public type for all of them."""
Late = Callable[[], bool]
"""Says whether the time for looking is over."""


def never() -> bool:
    """No limit of time."""
    return False


def within(seconds: float) -> Late:
    """Late once these seconds have passed."""
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() > end


MOST_NODES = 12_000
"""Nodes of one graph that are looked at. A node that Python has seen is freed by recursion ever after: chains of 30,000
were still freed on an 8 MB stack, of 50,000 not (torch 2.13.0, measured). Once a graph reached this, none is looked at
again. Many small graphs are no danger, and not limited."""


class _Depth:
    reached = False


def too_deep(nodes: int) -> bool:
    """Whether no (more) nodes may be looked at in this run, `nodes` having been looked at just now."""
    _Depth.reached = _Depth.reached or nodes >= MOST_NODES
    return _Depth.reached


_slots: dict[type, tuple[str, ...]] = {}
_ACCUMULATE = "torch::autograd::AccumulateGrad"


def _slots_of(node: Node) -> tuple[str, ...]:
    cls = type(node)
    known = _slots.get(cls)
    if known is None:
        known = _slots[cls] = tuple(name for name in dir(cls) if name.startswith("_raw_saved_"))
    return known


def forget_types() -> None:
    """Let go of the program's own Functions, and start anew."""
    _slots.clear()
    _Depth.reached = False


def saved_tensors(node: Node) -> Iterator[torch.Tensor]:
    """The tensors that a node saved for backward, those packed away by saved-tensor hooks included."""
    for name in _slots_of(node):
        try:
            value = getattr(node, name)
        except RuntimeError:
            continue
        for slot in value if type(value) in (list, tuple) else (value,):
            try:
                data = slot.data
            except (RuntimeError, AttributeError):
                continue
            if data is not None:
                yield from _tensors_in(data)


def _tensors_in(data: Any) -> Iterator[torch.Tensor]:
    if isinstance(data, torch.Tensor):
        yield data
    elif type(data) in (tuple, list, dict):
        for item in data.values() if type(data) is dict else data:
            yield from _tensors_in(item)


def ctx_tensors(node: Node) -> Iterator[torch.Tensor]:
    """The tensors that a custom Function keeps as attributes of its `ctx`, which backward does not free."""
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        for value in vars(node).values():
            yield from _tensors_in(value)


def _leaf(node: Node) -> Iterator[torch.Tensor]:
    """The leaf that a node accumulates into, and its gradient: they live as long as the node does."""
    leaf = getattr(node, "variable", None)
    if leaf is not None:
        yield leaf
        if leaf.grad is not None:
            yield leaf.grad


class _Graph:
    """A connected part of what was looked at, leaves aside: all of it may be freed in one recursion."""

    __slots__ = ("joined", "size")

    def __init__(self) -> None:
        self.size = 0
        self.joined: _Graph | None = None

    def whole(self) -> _Graph:
        graph = self
        while graph.joined is not None:
            graph = graph.joined
        return graph

    def join(self, other: _Graph) -> None:
        mine, others = self.whole(), other.whole()
        if mine is not others:
            small, large = sorted((mine, others), key=lambda g: g.size)
            small.joined = large
            large.size += small.size


Seen = dict[Node, _Graph]
"""Nodes that walks went through."""


@dataclass
class Reach:
    """What one walk newly reached: storages by key (saved by nodes, kept on a `ctx`, of leaves and their gradients)."""

    saved: dict[int, torch.UntypedStorage] = field(default_factory=dict)
    ctx: dict[int, torch.UntypedStorage] = field(default_factory=dict)
    leaves: dict[int, torch.UntypedStorage] = field(default_factory=dict)
    nodes: int = 0
    complete: bool = True


def storages_of(t: torch.Tensor) -> Iterator[torch.UntypedStorage]:
    """The storages behind a tensor: one for a strided tensor, its parts for sparse and wrapper tensors."""
    if type(t) is torch.Tensor or t.layout is torch.strided:
        flatten = getattr(t, "__tensor_flatten__", None)
        if flatten is not None and type(t) is not torch.nn.Parameter:
            for name in flatten()[0]:
                yield from storages_of(getattr(t, name))
            return
        try:
            storage = t.untyped_storage()
        except (NotImplementedError, RuntimeError):
            parts = _sparse_parts(t)
        else:
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


def walk(roots: list[Node], seen: Seen, claimed: set[int], late: Late) -> Reach:
    """Follow graphs from their roots through nodes not in `seen`, claiming storages not in `claimed`.

    Both are updated, so that walking one root after another counts every node and storage once.
    """
    reach = Reach()
    graph = _Graph()
    stack = list(roots)
    while stack:
        node = stack.pop()
        known = seen.get(node)
        if known is not None:
            # Parameters are the leaves of every graph and do not make them one.
            if type(node).__name__ != "AccumulateGrad":
                graph.join(known)
                if too_deep(graph.whole().size):
                    reach.complete = False
                    return reach
            continue
        seen[node] = graph
        reach.nodes += 1
        whole = graph.whole()
        whole.size += 1
        if too_deep(whole.size) or (not reach.nodes & 1023 and late()):
            reach.complete = False
            return reach
        kept = ((reach.saved, saved_tensors(node)), (reach.leaves, _leaf(node)), (reach.ctx, ctx_tensors(node)))
        for found, tensors in kept:
            for tensor in tensors:
                for storage in storages_of(tensor):
                    key = storage._cdata
                    if key not in claimed:
                        claimed.add(key)
                        found[key] = storage
                # What backward saved may itself belong to a deeper graph (create_graph, stored outputs).
                if tensor.grad_fn is not None:
                    stack.append(tensor.grad_fn)
        stack.extend(following for following, _ in node.next_functions if following is not None)
    return reach


def ops_between(root: Node, sequence: int, limit: int = MOST_NODES) -> list[str] | None:
    """Names of the operators on all ways from a node down to the one with a sequence number, or None where there is
    no way: how a value came from its value of before. Nodes are numbered as they are made, so that everything
    between has a higher number than the lower end, and what is older need not be walked.
    """
    above: dict[Node, list[Node]] = {root: []}
    queue = [root]
    target: Node = None
    for node in queue:
        if len(above) > limit or too_deep(len(above)):
            return None
        for following, _ in node.next_functions:
            if following is None or following.name() == _ACCUMULATE or following._sequence_nr() < sequence:
                continue
            if following in above:
                above[following].append(node)
                continue
            above[following] = [node]
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
    return list(dict.fromkeys(node.name() for node in reversed(queue[1:])))
