"""Keeps the freeing of long autograd graphs flat after Python has seen their nodes.

torch frees a graph in a loop, except for nodes that have a Python object: those are freed by recursion (torch 2.13,
measured: a chain of 50,000 nodes that was looked at overflows an 8 MB stack). So every so many nodes on every way down
one gets a breaker: it holds the nodes below for as long as its node lives, and frees them in a loop.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

_KEY = "torchvet"
_APART = 64
"""Nodes from one breaker to the next, on average. They are chosen by their number, scattered, so that looking at a
graph again chooses the same, and no regular program can avoid them."""
_SCATTER = 2654435761
"""Knuth's multiplicative hash: 2**32 divided by the golden ratio."""


class _Pending(threading.local):
    """What is to be freed on this thread."""

    def __init__(self) -> None:
        self.below: list[Any] = []
        self.busy = False


_pending = _Pending()


class Breaker:
    """Lives in the metadata of an autograd node."""

    __slots__ = ("below",)

    def __init__(self, below: list[Any]) -> None:
        self.below = below

    # As a default argument: at the interpreter's end a module's globals may be gone before the last node.
    def __del__(self, pending: _Pending = _pending) -> None:
        waiting = pending.below
        # Appended, not freed here: freeing would call the next breaker's `__del__` one level deeper.
        waiting.append(self.below)
        del self.below
        # Freeing nodes calls the next breaker from within the loop below: it only hands its nodes to that loop,
        # so that the stack stays flat.
        if pending.busy:
            return
        pending.busy = True
        try:
            while waiting:
                waiting.pop()
        finally:
            pending.busy = False


def nodes_below(node: Any) -> list[Any]:
    """The nodes that a node leads to. The only way to ask for them: they can be freed safely afterwards."""
    below = [following for following, _ in node.next_functions if following is not None]
    # The upper bits of the product: its lower ones repeat with a power of two, as regular programs do.
    if not (node._sequence_nr() * _SCATTER >> 16) % _APART and below:
        metadata = node.metadata
        # A node that was looked at before has its breaker; a second would free the same nodes for nothing.
        if _KEY not in metadata:
            metadata[_KEY] = Breaker(below)
    return below


def all_below(roots: Iterable[Any], most: int) -> Iterator[Any]:
    """The nodes at and below some, each once and the nearest first, until `most` have been met."""
    queue = list(dict.fromkeys(roots))
    seen = set(queue)
    for node in queue:
        yield node
        if len(seen) < most:
            fresh = [below for below in nodes_below(node) if below not in seen]
            seen.update(fresh)
            queue += fresh
