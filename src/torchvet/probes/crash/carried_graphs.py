"""Explains a backward that failed in the graph of an earlier pass: which names lead there, while their frames live."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import Any

import torch

from torchvet.gc_pause import collector_off
from torchvet.probes.base.callers import PROGRAM, Whereabouts
from torchvet.probes.base.kit import Watcher, frames, graphs
from torchvet.probes.crash import earlier_pass
from torchvet.probes.crash.earlier_pass import Reached
from torchvet.probes.crash.raised import Level, deciding, levels_of, message_of, users
from torchvet.probes.internals import private, saved
from torchvet.probes.memory.retained_sizes import HoldingTree
from torchvet.probes.objects import heap
from torchvet.recording.records.memory import CarriedGraph, CarriedName

_Way = tuple[tuple[int, int], ...]
"""Code objects, by identity, each with the instruction at which it stands."""
_WHY: dict[str, saved.Why] = {
    "backward through the graph a second time": "freed",
    "modified by an inplace operation": "changed",
}
_MOST_WAYS_THERE = 256
_TOGETHER = 16
_DEEPEST = 8
"""Frames of the program's that tell one way to a backward from another: two losses may go through one function."""
_SECONDS = 1.0
"""Budget for following the graph, and for the walk from names."""
_MOST_NAMES = 16
_MOST_WAYS = 4


class CarriedGraphs(Watcher):
    """Graphs that are carried from pass to pass."""

    def __init__(self, host: Any) -> None:
        super().__init__(host)
        self._marks: dict[_Way, tuple[int, int, int]] = {}
        """Of each way to a backward: the number of the next node when it was gone before and when it is, and how often
        it was gone before."""
        self._last: _Way = ()
        self._calls: list[tuple[Whereabouts, int]] = []
        """Passes that are not among the marks yet, and the number of the next node when each began."""

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """Nodes made from now on are of the line's next pass. A backward within one (checkpointing) is part of it."""
        # -1 is torch's answer outside of any backward.
        if private.graph_task() != -1:
            return
        # Many at once: the caches that a step empties are filled once for them.
        self._calls.append((self.host.way, private.sequence_nr()))
        if len(self._calls) >= _TOGETHER:
            self._mark()

    def _mark(self) -> None:
        calls, self._calls = self._calls, []
        for here, number in calls:
            way = self._last = _way(here)
            if way not in self._marks and len(self._marks) >= _MOST_WAYS_THERE:
                # A program with that many ways to a backward has no line that one could name; start
                # again rather than grow.
                self._marks.clear()
            # The first number is of the pass before the last: nodes from there on are of the pass that
            # fails.
            _, mark, passes = self._marks.get(way, (0, 0, -1))
            self._marks[way] = mark, number, passes + 1

    def finish(self, how: str, error: BaseException | None) -> None:
        """Look at the error while its frames are alive. Nothing is looked at before: what is caught is no fault."""
        # Up to `_TOGETHER` passes wait; the failed one is among them.
        self._mark()
        for one in deciding(error):
            # By torch's words: autograd raises plain RuntimeErrors, without a class or code of their own.
            why = next((kind for text, kind in _WHY.items() if text in str(one)), None)
            levels = levels_of(one) if why is not None and isinstance(one, RuntimeError) else []
            level = next((v for v in levels if _is_autograd(v)), None)
            at, mark = users(levels), self._marks.get(self._last, (0, 0, 0))
            # The first pass of a line has no earlier one whose graph it could fail in.
            # `mark[2]` counts how often the line's pass was gone before.
            if level is None or at is None or why is None or mark[2] < 1:
                continue
            given = level.local("tensors") if level.function == "backward" else level.local("outputs")
            # Otherwise each attribute of a tensor subclass runs its `__torch_function__`.
            with collector_off(), private.DisableTorchFunction():
                record = CarriedGraph(place=at.place, why=why, message=message_of(one), passes=mark[2])
                self._look(graphs.roots_of(given), record, mark[0], [v.frame for v in levels])

    def _look(self, roots: list[Any], record: CarriedGraph, mark: int, standing: list[FrameType]) -> None:
        found = earlier_pass.reached(roots, mark, record.why, graphs.within(_SECONDS))
        if found.border and found.spoilt:
            record.names = list(_names(found, standing))
            self.host.write(record)


def _way(here: Whereabouts) -> _Way:
    """Where the program stands in each of its innermost functions."""
    # By identity: the hash of a code object goes through all that it is made of.
    return tuple([(id(code), instruction) for _, code, instruction in here[:_DEEPEST]])


def _is_autograd(level: Level) -> bool:
    """Whether a frame is `torch.autograd.backward` or `grad`."""
    code = level.frame.f_code
    return code.co_name in ("backward", "grad") and code.co_filename == torch.autograd.__file__


def _names(found: Reached, standing: list[FrameType]) -> Iterator[CarriedName]:
    """The names of tensors that hang on the border, what was made in an earlier pass itself among them; the oldest
    first, those of one container once, and each by all its names."""
    walk = heap.HeapWalk(_SECONDS)
    tree = HoldingTree(walk)
    roots = [*heap.module_roots((frames.USER,)), *_of_the_program(heap.frame_roots([], standing)), *_gone(standing)]
    try:
        walk.add_roots(roots)
        walk.run()
        late = graphs.within(_SECONDS)
        led = [t for t in walk.tensors if t.grad_fn is not None and found.leads_there(t.grad_fn, late)]
        led.sort(key=lambda t: t.grad_fn._sequence_nr() if t.grad_fn is not None else 0)
        held = {_holder(walk, id(tensor)): tensor for tensor in reversed(led)}
        oldest = list(reversed(held))[:_MOST_NAMES]
        others = _other_parents(walk, set(oldest), late)
        for number, key in enumerate(oldest):
            tensor, container = held[key], type(walk.objects[key]).__name__ if key != id(held[key]) else ""
            for root, parent in _ways(walk, key, roots, others.get(key, [])):
                walk.parent[key] = parent
                if root is not None:
                    walk.roots[key] = root
                tree.forget_names()
                yield _named(tree.holding(key), number, tensor, container, found)
    finally:
        tree.close()
        walk.close()
        # They hold the program's objects, none of which is to live longer for this.
        # Frames of an exception that the caller may still hold would else be held by these lists.
        roots.clear()


def _holder(walk: heap.HeapWalk, key: int) -> int:
    """The tuple or list that a tensor is a part of, as the state of an LSTM; else the tensor."""
    parent = walk.parent[key]
    # An LSTM's `(h, c)` is one state to its program: two names for it would be two findings.
    return parent if type(walk.objects.get(parent)) in (tuple, list) else key


def _other_parents(walk: heap.HeapWalk, keys: set[int], late: graphs.Late) -> dict[int, list[int]]:
    """What else refers to some objects, besides what the walk found them by."""
    found: dict[int, list[int]] = {}
    for count, (parent, one) in enumerate(list(walk.objects.items())):
        if not count & 1023 and late():
            break
        # Only kinds whose referents C code gives: no property or `__iter__` of the program's is run.
        if heap.kind_of(type(one)) == heap.PLAIN and id(one) not in walk.skip:
            for key in keys.intersection(map(id, gc.get_referents(one))):
                # What hangs below the object itself (a tensor's own graph) is no name for it.
                if walk.parent[key] != parent and key not in walk.chain(parent):
                    found.setdefault(key, []).append(parent)
    return found


def _ways(
    walk: heap.HeapWalk, key: int, roots: list[heap.Root], others: list[int]
) -> list[tuple[heap.Root | None, int]]:
    """The names that lead to an object, each as a root of its own or by its parent; the shortest first."""
    own = [(root, 0) for root in roots if id(root.value) == key]
    parents = [walk.parent[key], *others] if walk.parent[key] else others
    return [*own, *((None, parent) for parent in parents)][:_MOST_WAYS]


def _gone(standing: list[FrameType]) -> Iterator[heap.Root]:
    """Globals of modules that are no longer among the loaded ones, as those that `runpy` has run."""
    loaded = {id(vars(module)) for module in list(sys.modules.values()) if type(module) is ModuleType}
    for frame in standing:
        code, names = frame.f_code, frame.f_globals
        # `runpy` takes the module out of `sys.modules` when it fails; its globals live in the traceback's
        # frames alone.
        if code.co_name == "<module>" and id(names) not in loaded and frames.owner(code.co_filename) == frames.USER:
            for name, value in list(names.items()):
                if not name.startswith("__"):
                    yield heap.Root(name, "global", names.get("__name__", "?"), code.co_filename, None, None, value)


def _of_the_program(roots: Iterator[heap.Root]) -> Iterator[heap.Root]:
    """Not what torch's own frames call it, between the program's line and the engine."""
    return (r for r in roots if frames.owner(r.path) in PROGRAM)


def _named(holding: Any, number: int, tensor: torch.Tensor, container: str, found: Reached) -> CarriedName:
    shared = {name: getattr(holding, name) for name in ("name", "kind", "scope", "path", "place", "files")}
    old, ops = tensor.grad_fn in found.border, found.ops_on(tensor.grad_fn)
    return CarriedName(**shared, container=container, number=number, old=old, ops=ops)
