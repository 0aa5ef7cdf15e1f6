"""Describes what holds tensors that no name leads to: reference cycles, or nothing that Python can see."""

from __future__ import annotations

import gc
import types
from collections.abc import Collection
from typing import Any

import torch

from torchvet.probes import frames, graphs, heap, naming
from torchvet.probes.ledger import Birth
from torchvet.recording.records import Stranger


def describe(
    births: dict[int, Birth], own: set[int], reachable: Collection[int], late: graphs.Late = graphs.never, most: int = 2
) -> list[Stranger]:
    """For a few unreached storages, who is in the garbage cycle that keeps them; else that only C++ holds them
    (an autograd graph that nothing names, an extension). Nothing where it got late before that was known."""
    if not births:
        return []
    kind_of, tensor = heap.kind_of, heap.TENSOR
    tensors = [o for o in gc.get_objects() if kind_of(type(o)) == tensor and _keys(o) & births.keys()]
    found: dict[Stranger, None] = {}
    for one in tensors[:most]:
        cycle = _cycle_through(one, own | {id(tensors), id(found)}, reachable, late)
        if cycle is None:
            return list(found)
        found.update(dict.fromkeys(cycle))
    return list(found) or [Stranger(kind="native")]


def _keys(tensor: torch.Tensor) -> set[int]:
    return {s._cdata for s in graphs.storages_of(tensor)}


def _cycle_through(
    start: Any, own: set[int], reachable: Collection[int], late: graphs.Late, limit: int = 120
) -> list[Stranger] | None:
    """Attributes of user objects, and user functions, in the garbage that a tensor belongs to.

    Garbage is what holds itself only: going up from holder to holder ends without meeting a running frame, a module or
    anything that a name reaches. Where that does not come out within `limit` objects, nothing is claimed. None where it
    got late: a layer costs a pass over the heap.
    """
    seen: dict[int, Any] = {id(start): start}
    layer: list[Any] = [start]
    while layer:
        if late():
            return None
        following: list[Any] = []
        skip = own | {id(layer), id(following), id(seen)}
        for referrer in gc.get_referrers(*layer):
            if id(referrer) in seen or id(referrer) in skip or _is_ours(referrer):
                continue
            if id(referrer) in reachable or isinstance(referrer, (types.FrameType, types.ModuleType)):
                return []
            seen[id(referrer)] = referrer
            following.append(referrer)
        if len(seen) > limit:
            return []
        layer = following
    return [s for o in seen.values() for s in _in_cycle(o, seen)]


def _is_ours(o: Any) -> bool:
    return isinstance(o, types.FrameType) and frames.owner(o.f_code.co_filename) == frames.OWN


def _in_cycle(o: Any, seen: dict[int, Any]) -> list[Stranger]:
    if isinstance(o, types.FunctionType):
        code = o.__code__
        if frames.owner(code.co_filename) != frames.USER:
            return []
        return [Stranger(kind="cycle", owner=o.__qualname__, path=code.co_filename, line=code.co_firstlineno)]
    cls = type(o)
    if issubclass(cls, torch.autograd.function.BackwardCFunction):
        return _on_ctx(o, cls)
    file = _file_of(cls)
    if file is None:
        return []
    return [
        Stranger(kind="cycle", owner=cls.__qualname__, attribute=name, path=file)
        for name, value in (naming.namespace(o) or {}).items()
        if id(value) in seen and not issubclass(type(value), torch.Tensor)
    ]


def _on_ctx(o: Any, cls: Any) -> list[Stranger]:
    """Tensors that a custom Function's `ctx` has as attributes; the Function that the user wrote is `_forward_cls`."""
    function = getattr(cls, "_forward_cls", cls)
    code = getattr(getattr(function, "forward", None), "__code__", None)
    return [
        Stranger(
            kind="ctx", owner=function.__qualname__, attribute=name,
            path=code.co_filename if code else None, line=code.co_firstlineno if code else None,
        )
        for name, value in vars(o).items() if issubclass(type(value), torch.Tensor)
    ]  # fmt: skip


def _file_of(cls: type) -> str | None:
    """The file of a class that is the user's."""
    file = heap.file_of_class(cls)
    return file if file is not None and frames.owner(file) == frames.USER else None
