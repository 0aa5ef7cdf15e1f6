"""Says how one object holds another, in the words of the person who wrote the program.

Only the few paths that end up in a report are named; the walk itself keeps identities.
"""

from __future__ import annotations

import functools
import gc
import queue
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import torch

from torchvet.probes.objects import heap
from torchvet.probes.objects.variables import frame_locals

# The C type has no public name.
_LRU = type(functools.lru_cache(maxsize=1)(lambda: None))
_MODULE_TABLES = ("_modules", "_parameters", "_buffers")
_HOOK_TABLES = ("_hooks", "_hooks_with_kwargs", "_hooks_always_called")


class Hop(NamedTuple):
    """One step of a path: `text` is appended to the name (empty where a person would not see the hop)."""

    text: str
    via: str | None = None


UNSEEN = Hop("")


def hop(parent: Any, child: Any, grandparent: Any = None) -> Hop:
    """How `parent` holds `child`; `grandparent` tells whose attributes a dict is."""
    cls = type(parent)
    # The tuple or dict between a partial and what it gives is no hop that one wrote.
    if issubclass(type(grandparent), functools.partial) and issubclass(cls, (tuple, dict)):
        return _partial_hop(grandparent, parent, child)
    if issubclass(cls, dict):
        return _dict_hop(parent, child, grandparent)
    # `zip` keeps its iterators in a tuple, which a person would not see as a hop either.
    if _is_plain_iterator(type(grandparent) if cls is tuple else cls):
        return UNSEEN
    # Said in brackets: `loader (itertools.cycle)` keeps every batch that it has seen.
    if cls.__module__ == "itertools":
        links = cls.__name__ == "_tee_dataobject"
        return Hop("" if links else f" (itertools.{cls.__name__.lstrip('_')})", "iterator")
    # By type alone, as everywhere: `isinstance` would ask the object for its class.
    describe = next((describe for base, describe in _HOPS.items() if issubclass(cls, base)), _instance_hop)
    return describe(parent, child)


def _is_plain_iterator(cls: type) -> bool:
    """Whether a type is one of Python's own iterators: `enumerate`, `zip`, that of a list."""
    return cls.__module__ == "builtins" and cls is not types.GeneratorType and heap.is_iterator(cls)


def _partial_hop(whole: functools.partial[Any], given: Any, child: Any) -> Hop:
    """What functools.partial gives to a function, by the name that it has there."""
    # Identity: the walk met this very tuple.
    if given is whole.args:
        index = next((i for i, one in enumerate(whole.args) if one is child), 0)
        name = _parameter(whole.func, index)
        return Hop(f".<partial {name[0]}>.{name[1]}", "closure") if name else Hop(f".args[{index}]")
    if given is whole.keywords:
        # A keyword needs no position; this only asks for the function's name.
        name = _parameter(whole.func, 0)
        key = next((k for k, one in whole.keywords.items() if one is child), None)
        return Hop(f".<partial {name[0]}>.{key}" if name and key else f".keywords[{_short(key)}]", "closure")
    return UNSEEN


def _hop_of_partial(whole: functools.partial[Any], child: Any) -> Hop:
    return UNSEEN if child is whole.args or child is whole.keywords else _instance_hop(whole, child)


def _parameter(function: Any, index: int) -> tuple[str, str] | None:
    """A function's name and that of a positional parameter; None where it has none or is not Python's."""
    # A bound method has given `self` already.
    bound = type(function) is types.MethodType
    code = getattr(function.__func__ if bound else function, "__code__", None)
    if type(code) is not types.CodeType or index + bound >= code.co_argcount:
        return None
    return code.co_name, code.co_varnames[index + bound]


def _is_of_threads(table: Any) -> bool:
    """Whether a dict is where a threading.local keeps one dict of attributes for each thread."""
    key = next(iter(dict.keys(table)), None) if type(table) is dict else None
    # Python 3.10 to 3.12 key by a reference to a dummy, 3.13 by the dummy: the type's name is all that can be
    # asked.
    return type(key).__name__ == "_localdummy" or (
        type(key) is weakref.ReferenceType and type(key()).__name__ == "_localdummy"
    )


def _dict_hop(parent: dict[Any, Any], child: Any, grandparent: Any) -> Hop:
    # One dict for each thread: a person says the attribute of the `threading.local`.
    if _is_of_threads(parent):
        return Hop("")
    # By the base class: `items` of a subclass may compute.
    for key, value in dict.items(parent):
        if value is child:
            if _is_of_threads(grandparent):
                return Hop(f".{key}")
            if grandparent is not None and _is_namespace(grandparent, parent):
                return _attribute_hop(grandparent, key)
            if grandparent is not None and _is_table(grandparent, parent):
                return Hop(f".{key}")
            # The key as it is written, where printing it runs no code of the program's.
            return Hop(f"[{_short(key)}]")
        if key is child:
            return Hop(" (as a key)", "key")
    # The program has changed the dict since the walk.
    return Hop("[…]")


def _is_table(owner: Any, table: dict[Any, Any]) -> bool:
    """Whether a dict is where a module keeps its parameters, buffers or submodules."""
    # Between a module and its table a walk passes the attribute dictionary, once that exists as an object.
    space = owner if type(owner) is dict else namespace(owner) if issubclass(type(owner), torch.nn.Module) else None
    return space is not None and any(dict.get(space, name) is table for name in _MODULE_TABLES)


def _is_namespace(owner: Any, space: dict[Any, Any]) -> bool:
    return getattr(type(owner), "__dict__", None) is not None and namespace(owner) is space


def namespace(owner: Any) -> dict[str, Any] | None:
    """An instance's attribute dictionary, read without running any code of its class; None where it has none."""
    try:
        space = object.__getattribute__(owner, "__dict__")
    except (AttributeError, TypeError):
        return None
    return space if isinstance(space, dict) else None


def _attribute_hop(owner: Any, key: str) -> Hop:
    # `model._modules["fc"]` is `model.fc` to everybody.
    if issubclass(type(owner), torch.nn.Module) and key in _MODULE_TABLES:
        return Hop("")
    if isinstance(key, str) and key.endswith(_HOOK_TABLES):
        return Hop(f".{key}", "hook")
    if issubclass(type(owner), torch.autograd.function.BackwardCFunction):
        return Hop(f".ctx.{key}", "ctx")
    if is_queue(type(owner)):
        return Hop("", "queue")
    return Hop(f".{key}")


def is_queue(cls: type) -> bool:
    """Whether objects of a type are queues between threads or, of asyncio, between tasks."""
    if issubclass(cls, queue.Queue):
        return True
    # Not imported for this: asyncio takes longer to import than everything here.
    asyncio = sys.modules.get("asyncio.queues")
    return asyncio is not None and issubclass(cls, asyncio.Queue)


def _short(key: Any) -> str:
    if type(key) in (str, int, float, bool):
        return repr(key)[:40]
    if issubclass(type(key), torch.Tensor):
        return "tensor"
    return f"<{type(key).__name__}>"


def _sequence_hop(parent: Any, child: Any) -> Hop:
    base = next(b for b in (list, tuple, deque) if issubclass(type(parent), b))
    # By the base's own method: a subclass of the program's may have another, which would run.
    # A deque has no cheap access by index: this goes through once.
    for index, value in enumerate(base.__iter__(parent)):
        if value is child:
            # A named tuple's fields.
            names = heap.namespace_of_class(type(parent)).get("_fields")
            return Hop(f".{names[index]}" if names else f"[{index}]")
    return _instance_hop(parent, child)


def _function_hop(parent: types.FunctionType, child: Any) -> Hop:
    # Cells stand in the order of the names.
    for name, cell in zip(parent.__code__.co_freevars, parent.__closure__ or (), strict=False):
        if cell is child:
            return Hop(f".<closure>.{name}", "closure")
    if child is parent.__defaults__ or child is parent.__kwdefaults__:
        return Hop(".<default>", "default")
    return UNSEEN


def _tensor_hop(parent: torch.Tensor, child: Any) -> Hop:
    if isinstance(child, torch.Tensor):
        return Hop(".grad", "grad")
    if isinstance(child, torch.autograd.function.BackwardCFunction):
        return Hop(".grad_fn", "ctx")
    if child is parent._backward_hooks:
        return Hop("._backward_hooks", "hook")
    return UNSEEN


def _exception_hop(parent: BaseException, child: Any) -> Hop:
    # The traceback first: it keeps frames, which is how exceptions keep memory.
    for name in ("__traceback__", "__context__", "__cause__", "args"):
        # Past the class, which may have a property of that name: its code would run.
        if vars(BaseException)[name].__get__(parent) is child:
            return Hop(f".{name}", "exception" if name != "args" else None)
    return _instance_hop(parent, child)


def _frame_hop(parent: Any, child: Any) -> Hop:
    # See `heap.frame_children`.
    if isinstance(child, types.FrameType):  # the caller's: its variables are named by its own function
        return Hop("", "frame")
    frame = parent if isinstance(parent, types.FrameType) else _frame_of(parent)
    if frame is None:
        return Hop("", "frame")
    # Where they cannot be read the function's name has to do.
    names = frame_locals(frame) or {}
    scope = frame.f_code.co_name
    for name, value in names.items():
        if value is child:
            return Hop(f" → {scope}(): {name}", "frame")
    return Hop(f" → {scope}()", "frame")


def _frame_of(owner: Any) -> types.FrameType | None:
    # Generators, coroutines, asynchronous generators.
    for name in ("gi_frame", "cr_frame", "ag_frame"):
        frame = getattr(owner, name, None)
        if isinstance(frame, types.FrameType):
            return frame
    return None


def _attribute(space: Any, child: Any, via: str | None) -> Hop:
    for name, value in space.items():
        if value is child:
            return Hop(f".{name}", via)
    return Hop("", via)


def _instance_hop(parent: Any, child: Any) -> Hop:
    """An instance that holds a value inline (3.11+), in a slot, or out of Python's sight."""
    space = namespace(parent)
    # The attribute dictionary is no hop: the next one names the attribute.
    if space is child:
        return Hop("")
    for name, value in (space or {}).items():
        if value is child:
            return _attribute_hop(parent, name)
    # The bases are read past any metaclass, whose code would be the program's.
    slots = (item for cls in type.__dict__["__mro__"].__get__(type(parent)) for item in _slots(cls))
    # An object of C keeps it where nobody can look: its type is all there is to say.
    name = next((name for name, slot in slots if _held(slot, parent) is child), f"<{type(parent).__name__}>")
    return Hop(f".{name}")


def _slots(cls: type) -> Iterator[tuple[str, Any]]:
    found = heap.namespace_of_class(cls).items()
    return ((name, value) for name, value in found if type(value) is types.MemberDescriptorType)


def _held(slot: Any, owner: Any) -> Any:
    try:
        return slot.__get__(owner)
    except AttributeError:
        return _NOTHING


_HOPS: dict[type, Callable[[Any, Any], Hop]] = {
    **dict.fromkeys((list, tuple, deque), _sequence_hop),
    **dict.fromkeys((threading.local, types.CellType, types.MethodType), lambda parent, child: UNSEEN),
    functools.partial: _hop_of_partial,
    types.FunctionType: _function_hop,
    # The cache's entries; the function itself is no hop.
    _LRU: lambda parent, child: Hop(" (lru_cache)" if child is not parent.__wrapped__ else "", "cache"),
    torch.Tensor: _tensor_hop,
    BaseException: _exception_hop,
    types.TracebackType: lambda parent, child: Hop("", "exception"),
    **dict.fromkeys((types.FrameType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType), _frame_hop),
    type: lambda parent, child: _attribute(heap.namespace_of_class(parent), child, "class"),
    weakref.ReferenceType: lambda parent, child: Hop(".<callback>"),
    torch.autograd.function.BackwardCFunction: lambda parent, child: _attribute(vars(parent), child, "ctx"),
}
"""How objects of a type hold others; the first that fits counts. All else goes by its attributes."""


def capacity(container: Any) -> int | None:
    """The greatest number of items that a container can have, where its type says so."""
    cls = type(container)
    if issubclass(cls, deque):
        return int(container.maxlen) if container.maxlen is not None else None
    if cls is _LRU:
        size: int | None = container.cache_parameters()["maxsize"]
        return size
    if issubclass(cls, queue.Queue):
        # 0 means without limit.
        return int(container.maxsize) or None
    # asyncio's queues have it in their attributes: their property could be overridden.
    size = (namespace(container) or {}).get("_maxsize") if is_queue(cls) else None
    return size or None if type(size) is int else None


def cached_function(value: Any) -> Any:
    """The function behind an lru_cache wrapper, else None."""
    return value.__wrapped__ if type(value) is _LRU else None


def key_type(container: Any) -> str | None:
    """The type of the first key of a dict or of functools' cache, `Tensor` for any tensor and for a tuple with one;
    None for anything else."""
    if type(container) is _LRU:
        # Its attributes are a dict as well: that one has `__wrapped__`.
        # The cache itself is a dict that only C has.
        inside = (r for r in gc.get_referents(container) if type(r) is dict and "__wrapped__" not in r)
        container = next(inside, None)
    if not issubclass(type(container), dict) or not dict.__len__(container):
        return None
    # The first key stands for all: what fills a dict mostly does so in one line.
    key = next(iter(dict.keys(container)))
    parts = tuple.__iter__(key) if issubclass(type(key), tuple) else (key,)
    return "Tensor" if any(issubclass(type(part), torch.Tensor) for part in parts) else type(key).__name__


def item_type(container: Any) -> str | None:
    """The type of a container's last item (a dict's last value); None for anything else."""
    found = _last_item(container)
    return type(found).__name__ if found is not _NOTHING else None


def item_kind(container: Any) -> Literal["function", "module"] | None:
    """Whether a container's last item is something to call, which keeps what it closes over, or a module."""
    cls = type(_last_item(container))
    if issubclass(cls, torch.nn.Module):
        return "module"
    return "function" if issubclass(cls, _CALLED) else None


def holds_handlers(container: Any) -> bool:
    """Whether a container's last item is to be called, alone or with what it is given: each is somebody's own, and what
    one of them keeps is not the container's."""
    item = _last_item(container)
    if issubclass(type(item), tuple):
        item = next(iter(tuple.__iter__(item)), None)
    return issubclass(type(item), _CALLED)


def inner_types(container: Any) -> list[str]:
    """The types of the last items further in, while what is gone into is a list, deque or dict: of a dict of lists
    what the lists hold."""
    found: list[str] = []
    inner = _last_item(container)
    while issubclass(type(inner), (list, deque, dict)) and len(found) < _DEEPEST_ITEM:
        inner = _last_item(inner)
        if inner is not _NOTHING:
            found.append(type(inner).__name__)
    return found


_NOTHING = object()
_CALLED = (types.FunctionType, types.MethodType, functools.partial)
_DEEPEST_ITEM = 4


def _last_item(container: Any) -> Any:
    cls = type(container)
    for base in (list, tuple, deque):
        if issubclass(cls, base) and base.__len__(container):
            # The last item is the latest: what is stored now.
            return base.__getitem__(container, -1)
    if issubclass(cls, dict) and dict.__len__(container):
        # A copy: another thread may change the dict.
        return next(reversed(list(dict.values(container))))
    return _NOTHING


def length(container: Any) -> int | None:
    """The number of items, for the standard containers and what derives from them: a user's `__len__` is not called."""
    if type(container) is _LRU:
        return int(container.cache_info().currsize)
    for base in (list, tuple, dict, set, frozenset, deque):
        if issubclass(type(container), base):
            return int(base.__len__(container))
    return None
