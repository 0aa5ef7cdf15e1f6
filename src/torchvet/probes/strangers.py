"""Describes what holds tensors that no name leads to: reference cycles, or nothing that Python can see."""

from __future__ import annotations

import gc
import sys
import types
from typing import Any

import torch

from torchvet.probes import frames, graphs
from torchvet.probes.ledger import Birth

NATIVE = "native"
CYCLE = "cycle:"


def describe(births: dict[int, Birth], own: set[int], most: int = 3) -> list[str]:
    """For a few unreached storages: `cycle:module.Class` for each class that a garbage cycle runs through, else
    `native`, which means that only C++ (an autograd graph that nothing names, an extension) holds it."""
    if not births:
        return []
    tensors = [o for o in gc.get_objects() if _is_tensor(o) and _keys(o) & births.keys()]
    found: list[str] = []
    for tensor in tensors[:most]:
        for name in _cycle_through(tensor, own | {id(tensors)}):
            if name not in found:
                found.append(name)
    return found or [NATIVE]


def _is_tensor(o: Any) -> bool:
    return issubclass(type(o), torch.Tensor)


def _keys(tensor: torch.Tensor) -> set[int]:
    return {s._cdata for s in graphs.storages_of(tensor)}


def _cycle_through(start: Any, own: set[int], limit: int = 60) -> list[str]:
    """Classes and functions of the user's that hold `start` without any name leading to them."""
    names: list[str] = []
    seen = {id(start)}
    layer: list[Any] = [start]
    while layer and len(seen) < limit:
        following: list[Any] = []
        skip = own | {id(layer), id(following), id(seen)}
        for referrer in gc.get_referrers(*layer):
            if id(referrer) in seen or id(referrer) in skip or _is_ours(referrer):
                continue
            seen.add(id(referrer))
            following.append(referrer)
            name = _name(referrer)
            if name and name not in names:
                names.append(name)
        layer = following
    return names


def _is_ours(o: Any) -> bool:
    if isinstance(o, types.FrameType):
        return frames.owner(o.f_code.co_filename) == frames.OWN
    return isinstance(o, types.ModuleType)


def _name(o: Any) -> str | None:
    if isinstance(o, types.FunctionType):
        return f"{CYCLE}{o.__module__}.{o.__qualname__}"
    if isinstance(o, types.FrameType):
        return f"{CYCLE}{o.f_code.co_name}()"
    cls = type(o)
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    if cls.__module__ == "__main__" or (isinstance(file, str) and frames.owner(file) == frames.USER):
        return f"{CYCLE}{cls.__module__}.{cls.__qualname__}"
    return None
