"""Walks the heap forward from Python names, breadth first, to find every tensor and NumPy array that a name reaches.

Forward, because what Python's referrers show is misleading (the search's own frames, no frame locals since 3.11) and
slow (one heap scan a hop). Nothing is kept alive after `close()`, no attribute of a user's object is evaluated, and a
time budget bounds the cost.
"""

from __future__ import annotations

import functools
import gc
import inspect
import itertools
import sys
import threading
import types
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from torchvet.probes.base import frames
from torchvet.probes.base.callers import user_lines
from torchvet.probes.base.deadline import Deadline
from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.objects import arrays
from torchvet.probes.objects.threads import RunningThread, thread_of
from torchvet.probes.objects.variables import frame_locals
from torchvet.recording.records.base import Place

_ATOMS: tuple[type, ...] = (
    int, float, bool, str, bytes, bytearray, complex, type(None), type(...), types.CodeType, types.BuiltinFunctionType,
    types.WrapperDescriptorType, types.MethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.ModuleType, range, slice, torch.dtype, torch.device, torch.Size, torch.Generator, torch.layout,
    torch.memory_format, torch.UntypedStorage,
)  # fmt: skip

ATOM, PLAIN, TENSOR, FUNCTION, CLASS, FRAME, TEE, WEAK, ARRAY = range(9)
_TEE: type = type(itertools.tee(())[0])
WORTHWHILE = (frames.USER, frames.INSTALLED)
_KINDS: dict[type, int] = {
    torch.Tensor: TENSOR,
    types.FunctionType: FUNCTION,
    type: CLASS,
    types.FrameType: FRAME,
    weakref.ReferenceType: WEAK,
}
_kinds: dict[type, int] = dict.fromkeys(_ATOMS, ATOM)
_iterators: dict[type, bool] = {}


def kind_of(cls: type) -> int:
    """How objects of a type are expanded. By type alone: `isinstance` would wake lazy proxies."""
    kind = _kinds.get(cls)
    if kind is None:
        kind = _kinds[cls] = _classify(cls)
    return kind


def is_iterator(cls: type) -> bool:
    """Whether objects of a type are iterators. By type alone, as kinds are."""
    known = _iterators.get(cls)
    if known is None:
        # Past a metaclass, which may define `__mro__` or `mro()` anew.
        bases = type.__dict__["__mro__"].__get__(cls)
        known = kind_of(cls) != ATOM and any("__next__" in namespace_of_class(base) for base in bases)
        _iterators[cls] = known
    return known


def forget_types() -> None:
    """Forget the program's classes."""
    _kinds.clear()
    # In place: `_meet` and other modules hold this very dict.
    _kinds.update(dict.fromkeys(_ATOMS, ATOM))
    _iterators.clear()


def _classify(cls: type) -> int:
    kind = next((kind for base, kind in _KINDS.items() if issubclass(cls, base)), None)
    if kind is not None:
        return kind
    # After the table, so that a tensor subclass of torchvet's is a tensor still.
    if _is_own(cls):
        return ATOM
    if cls is _TEE:
        return TEE
    if arrays.is_array(cls):
        return ARRAY
    # Everything else by its C traversal, which is exact: dicts, lists, instances, cells, generators, bound methods,
    # exceptions, tracebacks, iterators, lru_cache wrappers.
    return PLAIN


def _is_own(cls: type) -> bool:
    """Whether a class is a probe's: torch holds our hooks, in a variable of its own while it calls them."""
    module = namespace_of_class(cls).get("__module__")
    return isinstance(module, str) and module.startswith("torchvet.probes.")


@dataclass
class Root:
    """A Python name that memory hangs from. `kind` is `global`, `local`, `attribute` for a frame's `self`, or
    `iterator` for what drives a loop."""

    name: str
    kind: str
    scope: str
    path: str
    line: int | None
    called_from: Place | None = None
    """The user's line that called the function whose variable this is."""
    value: Any = field(repr=False, default=None)
    thread: RunningThread | None = None
    """Whose variable it is, where that is not the thread that looks."""


class HeapWalk:
    """One walk. `tensors` come in the order of their distance from the roots; `parent` leads from each back to one.

    Call `close()` when done: the walk holds strong references to all it saw so that identities stay unique.
    """

    def __init__(self, budget: float) -> None:
        self.tensors: list[torch.Tensor] = []
        self.arrays: list[Any] = []
        self.modules: list[torch.nn.Module] = []
        self.parent: dict[int, int] = {}
        self.objects: dict[int, Any] = {}
        self.roots: dict[int, Root] = {}
        self.complete = True
        self._deadline = Deadline(budget)
        self._queue: deque[Any] = deque()
        self._tees: list[Any] = []
        self._classes: set[int] = set()
        # A frame that is walked leads back here: through its own containers the walk would reach all that it has met.
        self.skip: set[int] = {id(self), id(self.__dict__), id(self.parent), id(self.objects), id(self.roots)}
        self.skip |= {id(self.tensors), id(self.arrays), id(self._queue), id(self.modules)}
        # They are roots, by name and variable; met as objects they would give names like `frame.f_back`.
        self.skip |= {id(frame) for frame in running_frames()}

    def add_roots(self, roots: Iterable[Root]) -> None:
        """Start from these names; of several names for one object the first counts."""
        for root in roots:
            key = id(root.value)
            if kind_of(type(root.value)) == ATOM or key in self.parent or key in self.skip:
                continue
            self.roots[key] = root
            # 0 is no object's identity: it ends every chain.
            self.parent[key] = 0
            self.objects[key] = root.value
            self._queue.append(root.value)

    def allow(self, seconds: float) -> None:
        """From here on the budget is this."""
        self._deadline = Deadline(seconds)

    def run(self, tees: bool = True) -> None:
        """Walk until nothing is left or the budget ends (`complete` is then false). What iterators of `itertools.tee`
        share waits for a run in which all of them are known: without `tees` that is a later one."""
        self._go_on()
        if not tees:
            return
        # Iterators of one `itertools.tee` share what the last of them has not read yet: it is the one that keeps it.
        for tee in sorted(self._tees, key=_unread, reverse=True):
            self._meet(id(tee), gc.get_referents(tee))
            self._go_on()
        self._tees.clear()

    def _go_on(self) -> None:
        queue = self._queue
        count = 0
        while queue:
            count += 1
            # A reading of the clock costs as much as a few objects.
            if not count & 1023 and self._deadline.passed():
                self.complete = False
                return
            # From the front: breadth first gives the shortest path, which is the name that a person would
            # say.
            o = queue.popleft()
            self._meet(id(o), self._expand(o))

    def _meet(self, mine: int, children: Iterable[Any]) -> None:
        queue, parent, objects, kinds = self._queue, self.parent, self.objects, _kinds
        for child in children:
            cls = type(child)
            # `kind_of` is written out here because this runs for every object of the walk.
            kind = kinds.get(cls)
            if kind is None:
                kind = kind_of(cls)
            if kind == ATOM:
                continue
            key = id(child)
            if key in parent:
                continue
            parent[key] = mine
            # Strong, until `close`: identities of what is met must not be used again during the walk.
            objects[key] = child
            queue.append(child)

    def _expand(self, o: Any) -> Iterable[Any]:
        kind = _kinds.get(type(o), PLAIN)
        if id(o) in self.skip or kind == ATOM:
            return ()
        if kind == PLAIN:
            if issubclass(type(o), torch.nn.Module):
                self.modules.append(o)
            # C code of the type itself (`tp_traverse`): no `__iter__`, `__getattr__` or property of the
            # program's runs.
            return gc.get_referents(o)
        if kind == WEAK:
            return (o.__callback__,) if o.__callback__ is not None else ()
        if kind == TEE:
            self._tees.append(o)
            return ()
        if kind == TENSOR:
            self.tensors.append(o)
        elif kind == ARRAY:
            self.arrays.append(o)
        return _CHILDREN[kind](o)

    def chain(self, key: int) -> list[int]:
        """Identities from the root down to an object."""
        found = [key]
        while (key := self.parent[key]) != 0:
            found.append(key)
        found.reverse()
        return found

    def close(self) -> None:
        """Release everything."""
        for found in (self.tensors, self.arrays, self.modules, self._queue, self._tees):
            found.clear()
        for store in (self.parent, self.objects, self.roots, self.skip):
            store.clear()


def _unread(tee: Any) -> tuple[int, int]:
    """How many links of stored items lie before an iterator of `itertools.tee`, and how little of the first it has
    read, as far as Python tells."""
    count, links = 0, gc.get_referents(tee)
    while links:
        count += 1
        # By name: the type of the links between stored items is private to C.
        links = [one for one in gc.get_referents(links[0]) if type(one).__name__ == "_tee_dataobject"]
    return count, -_read_of_link(tee)


def _read_of_link(tee: Any) -> int:
    with warnings.catch_warnings():  # 3.12 and 3.13 warn that 3.14 will not tell
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            # The only place where Python tells how far an iterator has read its first link.
            return int(tee.__reduce__()[2][1])
        except (TypeError, IndexError):
            return 0


def children_of(o: Any) -> Iterable[Any]:
    """What any object holds, as a walk goes on from it."""
    kind = kind_of(type(o))
    return () if kind in (ATOM, WEAK) else _CHILDREN.get(kind, gc.get_referents)(o)


def tensor_children(t: torch.Tensor) -> list[Any]:
    """What a tensor holds that is a Python object: its gradient, hooks, attributes, and a custom Function's `ctx`."""
    # `.grad` of another tensor warns, and another thread's must not be read (`gradients`).
    gradient = gradient_of(t) if t.is_leaf else None
    # Other nodes are C++ objects; what their graphs save is claimed by `graphs.walk`.
    ctx = None if t.is_leaf or not isinstance(t.grad_fn, torch.autograd.function.BackwardCFunction) else t.grad_fn
    found = [one for one in (gradient, ctx) if one is not None]
    return [*found, *(one for one in (t._backward_hooks, t.__dict__) if one)]


def function_children(f: types.FunctionType) -> list[Any]:
    """Closure cells (not of our own hooks), defaults and attributes; not the globals, which are roots of their own."""
    found: list[Any] = list(f.__closure__ or ()) if frames.owner(f.__code__.co_filename) != frames.OWN else []
    found.extend(x for x in (f.__defaults__, f.__kwdefaults__) if x)
    if f.__dict__:
        found.append(f.__dict__)
    return found


def class_children(cls: type) -> list[Any]:
    """Class attributes of user classes. Library classes hold no user memory worth the walk."""
    file = file_of_class(cls)
    # torch's and the standard library's classes lead to registries and caches of everything.
    if file is None or frames.owner(file) not in (frames.USER, frames.INSTALLED):
        return []
    return list(namespace_of_class(cls).values())


_class_namespace = type.__dict__["__dict__"].__get__


def namespace_of_class(cls: type) -> Mapping[str, Any]:
    """A class's attributes, read past any metaclass."""
    found: Mapping[str, Any] = _class_namespace(cls)
    return found


def file_of_class(cls: type) -> str | None:
    """The file of the module that a class says it is from, read past any metaclass."""
    name = namespace_of_class(cls).get("__module__")
    module = sys.modules.get(name) if type(name) is str else None
    file = vars(module).get("__file__") if isinstance(module, types.ModuleType) else None
    return file if isinstance(file, str) else None


def frame_children(f: types.FrameType) -> list[Any]:
    """A finished frame's variables (a stored traceback keeps them), and the frames that it keeps: its caller's, which
    keeps what that function had in the end. Of running frames, which are roots of their own, a walk skips all."""
    # Its variables without `f_locals`, which would leave a dictionary behind before Python 3.13.
    held = gc.get_referents(f)
    if frames.owner(f.f_code.co_filename) == frames.OWN:
        return [x for x in held if isinstance(x, types.FrameType)]
    outside = {id(f.f_globals), id(f.f_builtins), id(f.f_code)}
    return [x for x in held if id(x) not in outside]


_CHILDREN: dict[int, Callable[[Any], Iterable[Any]]] = {
    TENSOR: tensor_children,
    FUNCTION: function_children,
    CLASS: class_children,
    FRAME: frame_children,
    ARRAY: arrays.children,
}


def frame_roots(unreadable: list[str], extra: list[types.FrameType]) -> Iterator[Root]:
    """Variables of running frames, the outermost first, then `self` and `cls`, then torch's own; without torchvet's.

    `extra` frames count as running. Names of functions whose variables cannot be read safely are added to `unreadable`.
    """
    own, names = threading.get_ident(), {t.ident: t.name for t in threading.enumerate()}
    late: list[Root] = []
    spaces: set[int] = set()
    for ident, stack in _stacks():
        if ident == own:
            # Before this thread's own: they ended within what runs now, and their variables are the
            # nearer names.
            stack[:0] = [f for f in reversed(extra) if frames.owner(f.f_code.co_filename) in WORTHWHILE]
        thread = "" if ident == own else f" (thread {names.get(ident, ident)})"
        other = None if ident == own else thread_of(ident, stack)
        for frame in reversed(stack):
            for root in itertools.chain(_free_globals(frame, spaces), _roots_of(frame, thread, unreadable)):
                root.thread = other if root.kind != "global" else None
                worthwhile = root.kind == "global" or frames.owner(root.path) in WORTHWHILE
                if root.kind == "attribute" or not worthwhile:
                    # Names of the program's variables first: `self` and torch's frames lead to
                    # the same objects by worse names.
                    late.append(root)
                else:
                    yield root
    yield from late


def _free_globals(frame: types.FrameType, spaces: set[int]) -> Iterator[Root]:
    """The globals of a frame, and the locals of code outside functions, where they are no loaded module's: of code that
    was given to `exec`, of a main module that was replaced. Each of these `spaces` comes once."""
    code = frame.f_code
    found = [frame.f_globals]
    # Code that was given to `exec` with locals of its own.
    if not code.co_flags & inspect.CO_OPTIMIZED and code.co_name == "<module>":
        found.append(frame.f_locals)
    name = frame.f_globals.get("__name__", "?")
    module = sys.modules.get(name) if type(name) is str else None
    for space in found:
        if id(space) in spaces or (isinstance(module, types.ModuleType) and vars(module) is space):
            continue
        spaces.add(id(space))
        # `exec` takes any mapping as locals: one of the program's would run code when it is read.
        if isinstance(space, dict) and frames.owner(code.co_filename) != frames.TORCH:
            yield from _globals(space, str(name), code.co_filename)


def running_frames() -> list[types.FrameType]:
    """The running frames of all threads, each thread's outermost first, this thread's last."""
    own = threading.get_ident()
    stacks = sorted(_stacks(), key=lambda one: one[0] == own)
    return [frame for _, stack in stacks for frame in reversed(stack)]


def _stacks() -> list[tuple[int, list[types.FrameType]]]:
    """The running frames of every thread, the innermost first; without torchvet's.

    This function's own frame is among those it goes through. A variable that still held it at the end would be a
    cycle, and through `f_back` the program's variables would wait for the collector with it.
    """
    found = []
    frame: types.FrameType | None = None
    # A dict of frames, which is emptied below: an innermost frame refers to it by its own variable.
    current = sys._current_frames()
    try:
        for ident in current:
            frame = current[ident]
            stack: list[types.FrameType] = []
            while frame is not None:
                if frames.owner(frame.f_code.co_filename) != frames.OWN:
                    stack.append(frame)
                frame = frame.f_back
            found.append((ident, stack))
        return found
    finally:
        frame = None
        current.clear()


def _roots_of(frame: types.FrameType, thread: str, unreadable: list[str]) -> Iterator[Root]:
    code = frame.f_code
    # The variables of a module's code are its globals, which are roots already.
    if code.co_name == "<module>":
        return
    variables = frame_locals(frame)
    if variables is None:
        unreadable.append(code.co_name)
        return
    module = frame.f_globals.get("__name__", "?")
    caller = _caller(frame)
    scope = f"{module}.{getattr(code, 'co_qualname', code.co_name)}{thread}"
    for name, value in variables.items():
        # Python calls the iterator of a comprehension's outermost loop `.0`.
        if name == ".0":
            yield root_of_loop(value, code.co_firstlineno, frame)
        elif name.isidentifier():  # pytest's assertions have variables of their own
            kind = "attribute" if name in ("self", "cls") else "local"
            yield Root(name, kind, scope, code.co_filename, code.co_firstlineno, caller, value)


def root_of_loop(iterator: Any, line: int, frame: types.FrameType) -> Root:
    """What drives a loop of a frame, as a name: no variable holds it."""
    code = frame.f_code
    function = getattr(code, "co_qualname", code.co_name)
    module = frame.f_globals.get("__name__", "?")
    scope = module if function == "<module>" else f"{module}.{function}"
    name = f"<iterator of the loop in line {line}>"
    return Root(name, "iterator", scope, code.co_filename, code.co_firstlineno, _caller(frame), iterator)


def _caller(frame: types.FrameType) -> Place | None:
    return next(iter(user_lines(frame.f_back, 1)), None)


def _owner_of_module(name: str, file: str) -> int:
    # `torch.ops.aten` and its like are modules with a made-up relative file.
    return frames.TORCH if name == "torch" or name.startswith("torch.") else frames.owner(file)


def finalizer_roots(skip: set[int]) -> Iterator[Root]:
    """What `weakref.finalize` is to call, with what arguments, when the objects die that it was made for: nobody need
    keep it for it to be kept. What torch is to call is added to what a walk skips: its compiler's guards lead to the
    globals of every file that was compiled."""
    # Private to `weakref`; without it only what finalizers alone hold is missed.
    waiting = getattr(weakref.finalize, "_registry", None)
    if isinstance(waiting, dict) and waiting:
        infos = list(waiting.values())
        skip |= {id(one) for one in infos if _is_torchs(getattr(one, "func", None))}
        if any(id(one) not in skip for one in infos):
            yield Root("weakref.finalize", "global", "weakref", "", None, None, waiting)


def _is_torchs(called: Any) -> bool:
    while type(called) is functools.partial:
        called = called.func
    if type(called) is types.MethodType:
        called = called.__func__
    if type(called) is not types.FunctionType:
        return False
    name = called.__globals__.get("__name__", "")
    return isinstance(name, str) and name.partition(".")[0] == "torch"


def module_roots(owners: tuple[int, ...]) -> Iterator[Root]:
    """Globals of the loaded modules that belong to these owners, the main module's first."""
    # Of several names for one object the first counts, and a person would say the main module's. No pairs: thousands of
    # them at once would stay in Python's free list, and the heap would seem to have grown.
    # Only names are sorted. Modules may be removed meanwhile by another thread.
    for name in sorted(sys.modules, key=lambda name: name not in ("__main__", "__mp_main__")):
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None) if isinstance(module, types.ModuleType) else None
        is_main = name == "__main__"
        if not is_main and not (isinstance(file, str) and _owner_of_module(name, file) in owners):
            continue
        # The main module is the user's, also where its file lies in a package (`python -m`).
        if is_main and frames.USER not in owners:
            continue
        yield from _globals(vars(module), name, file or "")


def _globals(space: dict[str, Any], scope: str, path: str) -> Iterator[Root]:
    for key, value in list(space.items()):
        # `__builtins__` and `__loader__` lead to all of Python.
        if not (isinstance(key, str) and key.startswith("__") and key.endswith("__")):
            yield Root(str(key), "global", scope, path, None, None, value)
