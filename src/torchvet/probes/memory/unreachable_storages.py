"""Describes what holds tensors that no name leads to: reference cycles, or nothing that Python can see."""

from __future__ import annotations

import types
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import torch

from torchvet.probes.base.kit import frames, graphs, place_in
from torchvet.probes.base.ledger import Birth
from torchvet.probes.internals import graph_teardown
from torchvet.probes.internals.saved import saved_tensors, unpack_hook_of
from torchvet.probes.memory.garbage import Garbage, components
from torchvet.probes.objects import heap, hook_tables, naming
from torchvet.probes.objects.variables import frame_locals
from torchvet.recording.records.base import SAVED_HOOKS, Stranger

_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
_TABLE_TYPES = (*_CONTAINERS, OrderedDict)
_TABLES = 3
"""Containers within each other that are looked into for an object with a name."""
_LARGEST = 5_000
"""Objects of a cycle of which it is tried out what would cut it."""
_CUTS = 16
_NODES = 64
"""Nodes below a tensor among which the one is looked for that saved it."""


class Found(NamedTuple):
    """Who holds what no name leads to, and the bytes that garbage holds."""

    strangers: list[Stranger]
    garbage: int


def describe(
    births: dict[int, Birth],
    own: set[int],
    reached: Collection[int],
    late: graphs.Late = graphs.never,
    most: int = 4,
    orphans: Collection[int] = (),
    claimed: Collection[int] = (),
) -> Found:
    """Who is in the garbage cycles that keep the births' storages, and the `orphans`, which are identities of tensors;
    else that only C++ holds them (an autograd graph that nothing names, an extension). Nothing where it got late before
    that was known. `claimed` are the storages that names lead to."""
    if not births and not orphans:
        return Found([], 0)
    garbage = Garbage(reached, own)
    try:
        # Tensors, because storages themselves are no objects that the collector knows.
        seeds = {id(t) for t in garbage.tensors() if id(t) in orphans or _has_one_of(births, t)}
        # Half a search would call garbage what is held.
        if not garbage.search(seeds, late):
            return Found([], 0)
        cycles = garbage.cycles()
        # Outermost first: cutting that one frees those below it.
        described = [_described(cycle, garbage) for cycle in cycles[:most]]
        outside = [[one] for one in _from_outside(garbage)]
        # Orphans of one dead model wait for the collector; only a habit of it is growth.
        if not births and not _recurs(described) and not _recurs(outside):
            return Found([], 0)
        found = list(dict.fromkeys((*chain(*described), *_in_graphs(garbage, seeds, set(chain(*cycles))))))
        found = found or _without_a_cut(garbage, bool(cycles), chain(*outside))[:most]
        return Found(found, _bytes_below([*chain(*cycles)], garbage, reached, claimed))
    finally:
        garbage.close()


def _without_a_cut(garbage: Garbage, cyclic: bool, outside: Iterable[Stranger]) -> list[Stranger]:
    """What to say where nobody is known who would be cut off: a cycle all the same, where nothing holds it."""
    if cyclic and not garbage.outer:
        return [Stranger(kind="cycle")]
    return list(dict.fromkeys(outside)) or [Stranger(kind="native")]


def _has_one_of(births: Collection[int], tensor: torch.Tensor) -> bool:
    return any(s._cdata in births for s in graphs.storages_of(tensor))


def _in_graphs(garbage: Garbage, seeds: Collection[int], members: set[int]) -> Iterator[Stranger]:
    """The nodes of graphs that hold tensors: a custom Function's on its `ctx`, where that closes one of the cycles,
    whose `members` these are; any other's by hooks."""
    for key in members:
        yield from _on_ctx(garbage.by_id[key], members)
    for key in garbage.outer:
        if key in seeds:
            yield from _saved_by(garbage.by_id[key])


def _from_outside(garbage: Garbage) -> Iterator[Stranger]:
    """The outermost objects of Python's that lead to them and that a person would know; what holds those is out of
    Python's sight, as a registry of C is. The table in which an autograd graph keeps its hooks is nobody's object."""
    # Tables lie between the holder out of sight and the object with a name: a few levels are looked through.
    level = garbage.outer
    for _ in range(_TABLES):
        following: list[int] = []
        for key in level:
            one = garbage.by_id[key]
            if type(one) in _TABLE_TYPES:
                following += garbage.below[key]
            # A tensor that something holds from outside has no name either.
            elif not issubclass(type(one), torch.Tensor):
                yield from _known_by(one)
        level = following


def _known_by(one: Any) -> Iterator[Stranger]:
    """What a person would call an object: the function that it calls, or its class."""
    code = hook_tables.code_of(one)
    if code is not None and frames.owner(code.co_filename) in heap.WORTHWHILE:
        place = place_in(code)
        yield Stranger(kind="native", owner=place.function, path=place.path, line=place.line)
        return
    file = heap.file_of_class(type(one))
    if file is not None and frames.owner(file) in heap.WORTHWHILE:
        yield Stranger(kind="native", owner=_qualname(type(one)), path=file)


def _recurs(described: list[list[Stranger]]) -> bool:
    """Whether two cycles are closed by the same: what was made once, and waits for the collector, is no growth."""
    firsts = [who[0] for who in described if who]
    return len(set(firsts)) < len(firsts)


class _Cut(NamedTuple):
    """A reference within a cycle that a person would cut. `holder` and `value` are identities; `rank` sorts."""

    stranger: Stranger
    holder: int
    value: int
    rank: tuple[bool, int, bool]


def _described(cycle: list[int], garbage: Garbage) -> list[Stranger]:
    """What closes a cycle, the best to cut first: what alone holds the whole together, the program's own before a
    library's, attributes before variables, a plain reference back before a container of many."""
    members = set(cycle)
    groups: dict[Stranger, list[_Cut]] = {}
    for key in cycle:
        for cut in _cuts_of(garbage.by_id[key], members):
            groups.setdefault(cut.stranger, []).append(cut)
    best = sorted(groups.items(), key=lambda item: min(cut.rank for cut in item[1]))
    inner = {key: [k for k in garbage.below[key] if k in members] for key in cycle}
    # Trying each cut runs Tarjan's algorithm over the cycle again.
    whole = len(cycle) > _LARGEST
    frees = {stranger: not whole and _frees(inner, cuts) for stranger, cuts in best[:_CUTS]}
    # Stable: among those that free all, the ranks of `best` decide.
    return sorted((s for s, _ in best[:_CUTS]), key=lambda s: not frees[s])


def _frees(inner: dict[int, list[int]], cuts: list[_Cut]) -> bool:
    """Whether nothing holds itself any more without these references."""
    gone = {(cut.holder, cut.value) for cut in cuts}
    return not components({key: [k for k in below if (key, k) not in gone] for key, below in inner.items()})


def _cuts_of(o: Any, members: set[int]) -> Iterator[_Cut]:
    if isinstance(o, types.FunctionType):
        yield from _of_function(o, members)
    elif isinstance(o, types.FrameType):
        yield from _of_frame(o, o, members)
    elif isinstance(o, types.GeneratorType) and o.gi_frame is not None:
        yield from _of_frame(o.gi_frame, o, members)
    else:
        yield from _of_instance(o, members)


def _of_function(o: types.FunctionType, members: set[int]) -> Iterator[_Cut]:
    code = o.__code__
    library = frames.owner(code.co_filename) != frames.USER
    stranger = Stranger(kind="cycle", owner=o.__qualname__, path=code.co_filename, line=code.co_firstlineno)
    # The reference through the closure's tuple is the one that defining the function elsewhere would cut.
    if not library and any(id(cell) in members for cell in o.__closure__ or ()):
        yield _Cut(stranger, id(o), id(o.__closure__), (library, 1, False))


def _of_frame(frame: types.FrameType, holder: Any, members: set[int]) -> Iterator[_Cut]:
    code = frame.f_code
    library = frames.owner(code.co_filename) != frames.USER
    # None where reading the variables would leave references behind.
    for name, value in (frame_locals(frame) or {}).items():
        if id(value) in members and not library:
            place = place_in(code)
            stranger = Stranger(kind="cycle", owner=place.function, attribute=name, path=place.path, line=place.line)
            stranger = msgspec.structs.replace(stranger, variable=True)
            yield _Cut(stranger, id(holder), id(value), (library, 2, _is_container(value)))


def _of_instance(o: Any, members: set[int]) -> Iterator[_Cut]:
    cls = type(o)
    file = heap.file_of_class(cls)
    owner = frames.owner(file) if file is not None else frames.STDLIB
    space = naming.namespace(o)
    if space is None or owner not in heap.WORTHWHILE:
        return
    for name, value in space.items():
        # A tensor in the cycle is its load, not the reference that one would cut.
        if id(value) in members and not issubclass(type(value), torch.Tensor):
            stranger = Stranger(kind="cycle", owner=_qualname(cls), attribute=str(name), path=file)
            # From Python 3.11 on an instance may hold its values itself, and else its dictionary does: either may
            # be the reference that closes the cycle.
            for holder in (id(o), id(space)):
                yield _Cut(stranger, holder, id(value), (owner != frames.USER, 0, _is_container(value)))


def _qualname(cls: type) -> str:
    found: str = type.__dict__["__qualname__"].__get__(cls)
    return found


def _is_container(value: Any) -> bool:
    return issubclass(type(value), _CONTAINERS)


def _written_in(code: types.CodeType | None) -> tuple[str | None, int | None]:
    return (None, None) if code is None else (code.co_filename, code.co_firstlineno)


def _on_ctx(o: Any, members: set[int]) -> Iterator[Stranger]:
    """Attributes of a custom Function's `ctx` that lead back to it: an output, alone or in a container. The Function
    that the user wrote is `_forward_cls`."""
    cls: Any = type(o)
    if not issubclass(cls, torch.autograd.function.BackwardCFunction):
        return
    function = getattr(cls, "_forward_cls", cls)
    path, line = _written_in(getattr(getattr(function, "forward", None), "__code__", None))
    for name, value in vars(o).items():
        if id(value) in members:
            yield Stranger(kind="ctx", owner=function.__qualname__, attribute=name, path=path, line=line)


def _saved_by(tensor: Any) -> Iterator[Stranger]:
    """The node that keeps a tensor which leads to that node: a hook for saved tensors gave it back as it was."""
    if not issubclass(type(tensor), torch.Tensor) or tensor.grad_fn is None:
        return
    # The node that saved it is a few below: hooks are given what the next operators save.
    for node in graph_teardown.all_below([tensor.grad_fn], _NODES):
        if any(saved is tensor for saved in saved_tensors(node)):
            path, line = _written_in(hook_tables.code_of(unpack_hook_of(node, tensor)))
            yield Stranger(kind="native", owner=SAVED_HOOKS, attribute=graphs.name_of(node), path=path, line=line)
            return


def _bytes_below(members: list[int], garbage: Garbage, reached: Collection[int], claimed: Collection[int]) -> int:
    """Bytes of all storages that cycles own: of tensors, their gradients, and what their graphs saved."""
    seen_storages = set(claimed)
    seen_nodes: graphs.Seen = set()
    seen = set(members)
    queue = [garbage.by_id[key] for key in members]
    size = 0
    while queue:
        one = queue.pop()
        kind = heap.kind_of(type(one))
        if kind == heap.TENSOR:
            size += _bytes_of(one, seen_storages, seen_nodes)
        for child in heap.children_of(one):
            key = id(child)
            wanted = heap.kind_of(type(child)) not in (heap.ATOM, heap.CLASS)
            if wanted and key not in seen and key not in reached and key not in garbage.held:
                seen.add(key)
                queue.append(child)
    queue.clear()
    return size


def _bytes_of(tensor: torch.Tensor, storages: set[int], nodes: graphs.Seen) -> int:
    size = 0
    for storage in graphs.storages_of(tensor):
        if storage._cdata not in storages:
            storages.add(storage._cdata)
            size += storage.nbytes()
    if tensor.grad_fn is not None:
        reach = graphs.walk([tensor.grad_fn], nodes, storages, graphs.never)
        # Leaves are parameters, and not the cycle's.
        size += reach.saved_bytes + sum(s.nbytes() for s in reach.ctx.values())
    return size
