"""Finds what only the value stacks of running frames hold: a `for` loop's iterator, what a `with` statement entered.

Python shows no frame's value stack. What lies on one gives itself away as the collector would tell it: it has more
references than all objects together account for. Only iterators, and the bound methods that `with` statements keep, are
asked; each is named by the loop that it drives.
"""

from __future__ import annotations

import contextlib
import dis
import gc
import sys
import types
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from torchvet.probes.base import frames
from torchvet.probes.objects import heap, naming

_MOST = 64
"""Iterators that are asked, the youngest: one pass over the heap compares every reference with each of them."""
_EXITS = ("__exit__", "__aexit__")


class Loop(NamedTuple):
    """A `for` loop that is running: its line and the names that stand there."""

    frame: types.FrameType
    line: int
    names: frozenset[str]


def stray_roots(reached: Collection[int], stacks: list[types.FrameType]) -> Iterator[heap.Root]:
    """What only value stacks hold, of all that a walk has not `reached`; `stacks` are the running frames, the
    outermost first."""
    held = _held_from_outside(_candidates(reached))
    if not held:
        return
    # Outermost first, as iterators are by age.
    loops = [loop for frame in stacks for loop in _loops_of(frame)]
    for loop, iterator in _matched(loops, [one for one in held if type(one) is not types.MethodType]):
        if frames.owner(loop.frame.f_code.co_filename) in heap.WORTHWHILE:
            yield heap.root_of_loop(iterator, loop.line, loop.frame)
    for method in held:
        if type(method) is types.MethodType:
            yield _entered(method.__self__, stacks)


def _matched(loops: list[Loop], iterators: list[Any]) -> Iterator[tuple[Loop, Any]]:
    """Each loop with the iterator that is called, by its type's or function's name, in the loop's line; what is left
    over goes by order, the innermost loop with the youngest."""
    names = {id(one): _names_of(one) for one in iterators}
    pairs = [(len(loop.names & names[id(one)]), loop, one) for loop in reversed(loops) for one in reversed(iterators)]
    # Stable: among pairs with equally many names the order of both lists decides.
    pairs.sort(key=lambda pair: -pair[0])
    taken: set[int] = set()
    for _, loop, one in pairs:
        # Greedy, the best pair first: a loop drives one iterator.
        if not {id(loop), id(one)} & taken:
            taken |= {id(loop), id(one)}
            yield loop, one


def _entered(owner: Any, stacks: list[types.FrameType]) -> heap.Root:
    """What a `with` statement keeps to leave again, as a root by its type."""
    # The innermost: which of several `with` statements it is Python does not tell.
    frame = next((f for f in reversed(stacks) if frames.owner(f.f_code.co_filename) == frames.USER), None)
    path, line = ("", None) if frame is None else (frame.f_code.co_filename, frame.f_code.co_firstlineno)
    return heap.Root(f"<{type(owner).__name__} of a with statement>", "iterator", "?", path, line, None, owner)


def _candidates(reached: Collection[int]) -> list[Any]:
    # By age, more or less. A list that is filled while it asks would find itself, and keep all.
    # The oldest generation first.
    everything = gc.get_objects(2) + gc.get_objects(1) + gc.get_objects(0)
    kinds = {cls for cls in set(map(type, everything)) if heap.is_iterator(cls)} | {types.MethodType}
    some = [one for one in everything if type(one) in kinds and id(one) not in reached]
    # The youngest are the ones that run: old iterators lie about in libraries.
    return [one for one in some if _may_be_held(one)][-_MOST:]


def _may_be_held(one: Any) -> bool:
    """Whether something may lie on a value stack of the program's: a generator of our own may not."""
    if type(one) is types.MethodType:
        return _leaves(one)
    return type(one) is not types.GeneratorType or _owner(one) != frames.OWN


def _leaves(method: Any) -> bool:
    """Whether a bound method ends a `with` statement, of an object of the program's."""
    if getattr(method.__func__, "__name__", "") not in _EXITS:
        return False
    owner = method.__self__
    # Private to `contextlib`: the base of what `@contextmanager` makes.
    if issubclass(type(owner), contextlib._GeneratorContextManagerBase):
        generator = (naming.namespace(owner) or {}).get("gen")
        return type(generator) is types.GeneratorType and _owner(generator) in heap.WORTHWHILE
    # torch's own context managers are many and hold nothing of the program's.
    file = heap.file_of_class(type(owner))
    return file is not None and frames.owner(file) in heap.WORTHWHILE


def _owner(generator: Any) -> int:
    return frames.owner(generator.gi_code.co_filename)


def _held_from_outside(found: list[Any]) -> list[Any]:
    """Those of some objects that have references which no object accounts for."""
    if not found:
        return []
    found.append([])  # the measure: nothing but `found` refers to it
    wanted = {id(one) for one in found}
    counted: Counter[int] = Counter()
    # One pass for all candidates: this goes through the whole heap.
    for referrer in gc.get_referrers(*found):
        counted.update(key for key in map(id, gc.get_referents(referrer)) if key in wanted)
    # The last referrer may be one of `found`, and this variable would be one reference more to it.
    del referrer
    # In one comprehension, so that the loop's own references are the same for each, the measure included.
    extra = [sys.getrefcount(one) - counted[id(one)] for one in found]
    return [one for one, more in zip(found[:-1], extra[:-1], strict=True) if more > extra[-1]]


def _loops_of(frame: types.FrameType) -> list[Loop]:
    """The `for` loops that a frame is in, the outermost first."""
    code = frame.f_code
    found: list[Loop] = []
    lines = {offset: line for start, end, line in code.co_lines() if line for offset in range(start, end, 2)}
    for at in dis.get_instructions(code):
        # FOR_ITER jumps to its argument when the loop is over: a frame between the two is in the loop.
        # An implementation's name: without it no loop is named, and all else works.
        if at.opname == "FOR_ITER" and at.offset <= frame.f_lasti < at.argval:
            line = lines.get(at.offset, code.co_firstlineno)
            before = (i for i in dis.get_instructions(code) if i.offset < at.offset and lines.get(i.offset) == line)
            found.append(Loop(frame, line, frozenset(i.argval for i in before if type(i.argval) is str)))
    return found


def _names_of(iterator: Any) -> set[str]:
    """What a program may call an iterator: by its type, its function, and those of what it goes through."""
    found: set[str] = set()
    layer = [iterator]
    # `enumerate(zip(loader))`: names may lie a few iterators down.
    for _ in range(3):
        for one in layer:
            found.add(type(one).__name__)
            if type(one) is types.GeneratorType:
                found.add(one.gi_code.co_name)
        layer = [r for one in layer if heap.kind_of(type(one)) == heap.PLAIN for r in gc.get_referents(one)][:32]
    return found
