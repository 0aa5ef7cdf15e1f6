"""Reads what the nodes of autograd graphs saved for backward, without running anybody's unpack hook.

Torch 2.10 and newer show the tensor, or what a hook made of it, in the node's raw slot (`_raw_saved_*`). Older versions
show it by unpacking only (`_saved_*`), which calls the hook where there is one: under activation checkpointing that
would run the forward pass again. There, nodes made while saved-tensor hooks were on are skipped.

A backward pass frees what nodes saved with the interpreter unlocked. A thread that reads it meanwhile ends the process
(a segmentation fault within seconds, seen in torch 2.13). So nothing is read while another thread lives that has begun
a pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch

from torchvet.probes.base.gradients import is_alone
from torchvet.probes.internals import private
from torchvet.probes.internals.packing import PACKING

_RAW, _SAVED = "_raw_saved_", "_saved_"
_OF_FUNCTIONS = "_raw_saved_tensors"
"""The slot of custom Functions: what it holds is read by another name, `saved_tensors`."""

Why = Literal["freed", "changed"]
_COMPLAINTS: dict[Why, str] = {"freed": "second time", "changed": "inplace operation"}
"""What torch says of what it will not unpack."""

_slots: dict[type, tuple[str, ...]] = {}


def slots_of(node: Any) -> tuple[str, ...]:
    """The names of the raw slots of what a node saves."""
    cls = type(node)
    known = _slots.get(cls)
    if known is None:
        # `dir` of a class takes longer than all else in a walk: once for each class.
        known = _slots[cls] = tuple(name for name in dir(cls) if name.startswith(_RAW))
    return known


def forget_types() -> None:
    """Forget the program's own Functions."""
    _slots.clear()


def saved_tensors(node: Any) -> Iterator[torch.Tensor]:
    """The tensors that a node saved for backward. A slot that backward has freed raises, or is None: it holds none.
    None either where another thread trains."""
    if not is_alone():
        return iter(())
    if not private.SLOTS_SHOW_TENSORS:
        # A list made at once: unpacking runs within `DisableTorchDispatch`, which must not stay on between
        # two items.
        return iter(_unpacked(node))
    # Those packed away by saved-tensor hooks included.
    return (tensor for _, data in _filled_slots(node) for tensor in tensors_in(data))


def tensors_in(data: Any) -> Iterator[torch.Tensor]:
    """Tensors in what a node keeps: one, or a container of them."""
    if isinstance(data, torch.Tensor):
        yield data
    # Exact types: iterating over a subclass would run code of the program's.
    elif type(data) in (tuple, list, dict):
        for item in data.values() if type(data) is dict else data:
            yield from tensors_in(item)


def _filled_slots(node: Any) -> Iterator[tuple[Any, Any]]:
    """The slots that hold something, each with what it holds."""
    for name in slots_of(node):
        try:
            value = getattr(node, name)
        # torch raises for a node whose buffers backward has freed.
        except RuntimeError:
            continue
        # Operators on lists (`cat`, `_foreach_*`) have a list of slots under one name.
        for slot in value if type(value) in (list, tuple) else (value,):
            try:
                data = slot.data
            except (RuntimeError, AttributeError):
                continue
            if data is not None:
                yield slot, data


def unpack_hook_of(node: Any, tensor: torch.Tensor) -> Any:
    """The program's function that unpacks what a node keeps a tensor itself in; None where torch does not show it, and
    where another thread trains."""
    if not is_alone() or not private.SLOTS_SHOW_TENSORS:
        return None
    slots = (slot for slot, data in _filled_slots(node) if any(one is tensor for one in tensors_in(data)))
    return next((getattr(slot, "unpack_hook", None) for slot in slots), None)


def _unpacked(node: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for name in slots_of(node):
        try:
            found += tensors_in(_unpack(node, name))
        except (RuntimeError, AttributeError):  # freed, or changed in place since
            continue
    return found


def _unpack(node: Any, name: str) -> Any:
    """What a slot holds, for versions that have no other way; None where a hook would be called for it."""
    if PACKING.covers(node):
        return None
    # What is saved of a node's own result is copied for us, without its data: an operator that modes would hear.
    with private.DisableTorchDispatch():
        if name == _OF_FUNCTIONS:
            return private.saved_of_function(node)
        return getattr(node, name.replace(_RAW, _SAVED, 1))


def spoilt(node: Any, why: Why) -> bool:
    """Whether something that a node saved was freed by a backward pass, or has been changed in place since. Not known
    where another thread trains."""
    if not is_alone():
        return False
    judge = _slot_spoilt if private.SLOTS_SHOW_TENSORS else _refused
    return any(judge(node, name, why) for name in slots_of(node))


def _refused(node: Any, name: str, why: Why) -> bool:
    try:
        _unpack(node, name)
    except RuntimeError as error:
        return _COMPLAINTS[why] in str(error)
    except AttributeError:
        return False
    return False


def _slot_spoilt(node: Any, name: str, why: Why) -> bool:
    try:
        value = getattr(node, name)
    except RuntimeError:
        return why == "freed"
    slots = value if type(value) in (list, tuple) else [value]
    try:
        if why == "changed":
            return any(_is_changed(slot) for slot in slots)
        # Empty slots alone do not prove freeing: an operator may have saved nothing there. Unpacking tells
        # below.
        if not slots or any(slot.data is not None for slot in slots):
            return False
    except (AttributeError, RuntimeError):
        return False
    try:
        # No hook is called, because a freed slot raises before it would be.
        getattr(node, name.replace(_RAW, _SAVED, 1))  # nothing is there to unpack: it is None, or raises
    except RuntimeError:
        return True
    except AttributeError:
        return False
    return False


def _is_changed(slot: Any) -> bool:
    # Unpacking would call the program's hook, which under checkpointing computes the forward pass again.
    if slot.unpack_hook is not None or slot.data is None:
        return False
    try:
        slot.unpack()
    except RuntimeError as error:
        return _COMPLAINTS["changed"] in str(error)
    return False
