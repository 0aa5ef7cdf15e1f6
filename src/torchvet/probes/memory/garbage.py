"""Separates what no name leads to: garbage that holds itself, and what something out of Python's sight holds.

One pass over the heap finds who refers to whom among all that the walk from names has not reached. Whatever has more
references than these account for is held from outside, with all that it holds in turn; the rest is garbage, and in each
of its cycles everything holds everything.
"""

from __future__ import annotations

import gc
import sys
import types
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import torch

from torchvet.probes.base import frames, graphs
from torchvet.probes.objects import heap

_MOST = 50_000
"""Objects above some tensors from which on they are somebody's: a library's tables lead everywhere."""
_FREQUENT = 4096


class Garbage:
    """What leads to some objects, the seeds, among all that a walk has not reached. Call `close()` when done."""

    def __init__(self, reached: Collection[int], own: set[int]) -> None:
        self._objects = _unreached(reached, own)
        # Python versions differ in how many references a list, a loop and `getrefcount` hold themselves.
        self._objects.append([])  # the measure: nothing but this list refers to it
        self.by_id: dict[int, Any] = {}
        """All that leads to the seeds, and they themselves."""
        self.below: dict[int, list[int]] = {}
        """Of these, what each refers to."""
        self.held: set[int] = set()
        """Those of them that are held from outside, by themselves or by others."""
        self.outer: list[int] = []
        """Those that are held from outside by themselves."""

    def tensors(self) -> Iterator[torch.Tensor]:
        """The tensors among what was not reached."""
        return (o for o in self._objects if heap.kind_of(type(o)) == heap.TENSOR)

    def search(self, seeds: Iterable[int], late: graphs.Late) -> bool:
        """Find all that leads to the seeds, which are identities; False where it got late, or too much does."""
        above = self._references(late)
        if above is None:
            return False
        queue = list(set(seeds))
        # Upward from the tensors: only what leads to them matters, of a heap of millions.
        found = _closure(queue, above, _MOST)
        if found is None:
            return False
        # One reference more for each, which `_tell_held` takes into account.
        self.by_id = {id(o): o for o in self._objects if id(o) in found}
        self.below = {key: [] for key in found}
        for key in queue:
            for higher in above.get(key, ()):
                self.below[higher].append(key)
        self._tell_held(above)
        return True

    def _references(self, late: graphs.Late) -> dict[int, list[int]] | None:
        """By object, who refers to it, once for each reference."""
        known = {id(o) for o in self._objects}
        above: dict[int, list[int]] = defaultdict(list)
        for count, one in enumerate(self._objects):
            if not count % _FREQUENT and late():
                return None
            key = id(one)
            # A function's globals are no part of it: they would hold every other function of its module.
            apart = id(one.__globals__) if type(one) is types.FunctionType else 0
            for lower in map(id, gc.get_referents(one)):
                # References from what the walk has reached are not counted here, so that they show as
                # held from outside.
                if lower in known and lower != apart:
                    above[lower].append(key)
        return above

    def _tell_held(self, above: dict[int, list[int]]) -> None:
        # In one comprehension, so that all are counted under the same circumstances as the measure.
        counts = [(id(o), sys.getrefcount(o)) for o in self._objects if id(o) in self.by_id or o is self._objects[-1]]
        own = counts[-1][1] + 1  # ours: the list, and `by_id`
        self.outer = [key for key, count in counts[:-1] if count - len(above.get(key, ())) > own]
        self.held = _closure(list(self.outer), self.below) or set()

    def cycles(self) -> list[list[int]]:
        """The cycles of the garbage, those that others do not lead to first; each is all that holds each other."""
        free = self.below.keys() - self.held
        return components({key: [k for k in self.below[key] if k in free] for key in self.below if key in free})

    def close(self) -> None:
        """Release everything."""
        for store in (self._objects, self.by_id, self.below, self.held, self.outer):
            store.clear()


def _closure(queue: list[int], edges: Mapping[int, list[int]], most: int | None = None) -> set[int] | None:
    """Some nodes and all that edges lead to from them, in order in `queue`; None where these are more than `most`."""
    found = set(queue)
    for key in queue:
        for following in edges.get(key, ()):
            if following not in found:
                found.add(following)
                queue.append(following)
        if most is not None and len(queue) > most:
            return None
    return found


def _unreached(reached: Collection[int], own: set[int]) -> list[Any]:
    """All that may be garbage of the program's, or refer to some."""
    # Only what the collector tracks can be in a cycle.
    everything = gc.get_objects()
    kinds = {cls: heap.kind_of(cls) for cls in set(map(type, everything))}
    plain = {cls for cls, kind in kinds.items() if kind not in (heap.ATOM, heap.FUNCTION, heap.CLASS, heap.FRAME)}
    special = kinds.keys() - plain - {cls for cls, kind in kinds.items() if kind == heap.ATOM}
    left = (o for o in everything if id(o) not in reached and id(o) not in own)
    return [o for o in left if type(o) in plain or (type(o) in special and _is_programs(o))]


def _is_programs(o: Any) -> bool:
    """Whether a function, class or frame is worth following. A library's class and most of its functions are not: what
    they refer to is held from outside."""
    kind = heap.kind_of(type(o))
    # Torchvet's own frames run right now and lead to the walk's tables.
    if kind == heap.FRAME:
        return frames.owner(o.f_code.co_filename) != frames.OWN
    if kind == heap.FUNCTION:
        # A closure can hold tensors, whoever wrote it.
        return bool(o.__closure__) or frames.owner(o.__code__.co_filename) == frames.USER
    file = heap.file_of_class(o)
    return file is not None and frames.owner(file) == frames.USER


def components(below: dict[int, list[int]]) -> list[list[int]]:
    """The strongly connected components of a graph that hold a cycle (Tarjan), those above others first."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for start in below:
        # Without recursion: a linked list of the program's may be longer than Python's stack.
        work = [] if start in index else [(start, iter(below[start]))]
        while work:
            node, rest = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            # Both cases of Tarjan's in one: a new node is entered, one on the stack lowers `low`.
            following = next((k for k in rest if k not in index or k in on_stack), None)
            if following is not None:
                if following in index:
                    low[node] = min(low[node], index[following])
                else:
                    work.append((following, iter(below[following])))
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                found.append(_popped(stack, on_stack, node))
    # A single node counts where it refers to itself.
    cyclic = [one for one in found if len(one) > 1 or one[0] in below[one[0]]]
    # Tarjan's algorithm gives the lowest first.
    return cyclic[::-1]


def _popped(stack: list[int], on_stack: set[int], node: int) -> list[int]:
    at = len(stack) - 1
    while stack[at] != node:
        at -= 1
    one = stack[at:]
    del stack[at:]
    on_stack.difference_update(one)
    return one
