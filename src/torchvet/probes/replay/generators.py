"""Random generators that the program made for itself: found among its variables, and set back for a replay."""

from __future__ import annotations

import random
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import of_program
from torchvet.probes.internals.simulated import device_generators, simulated
from torchvet.probes.objects import naming
from torchvet.probes.objects.variables import frame_locals

_TORCHS = type(torch.default_generator)
"""torch's own: the simulated GPU puts a subclass in the place of `torch.Generator`."""
_MOST_VALUES = 2000
"""Values that one search looks at."""
_DEEP = 2
"""Objects within objects that are looked into: `self.sampler.generator`."""
_MOST_ITEMS = 64
_OURS = 2
"""References to a generator that only this module still holds: in its table, and in the call that asks."""


class _Kind(NamedTuple):
    """How generators of one type are read and set; `first` gives the state that its seed led to, or None."""

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]
    first: Callable[[Any], Any]


def _torch_first(one: torch.Generator) -> Any:
    # A fresh one of the same seed: the program's own must not be touched to find out.
    return torch.Generator(one.device).manual_seed(one.initial_seed()).get_state()


def _numpy_read(one: Any) -> Any:
    return _bits(one).state


def _numpy_write(one: Any, state: Any) -> None:
    _bits(one).state = state


def _numpy_first(one: Any) -> Any:
    bits = _bits(one)
    seed = getattr(bits, "seed_seq", None)
    return type(bits)(seed).state if seed is not None else None


def _bits(one: Any) -> Any:
    # Generator has it publicly, RandomState privately (`private.ATTRIBUTES`).
    return getattr(one, "bit_generator", None) or one._bit_generator


_TORCH = _Kind(lambda one: one.get_state(), lambda one, state: one.set_state(state), _torch_first)
_PYTHON = _Kind(lambda one: one.getstate(), lambda one, state: one.setstate(state), lambda one: None)
_NUMPY = _Kind(_numpy_read, _numpy_write, _numpy_first)


def _kind(value: Any) -> _Kind | None:
    # By type alone: `isinstance` would ask the program's object for its class.
    cls = type(value)
    if issubclass(cls, _TORCHS):
        readable = value.device.type == "cpu" or simulated()
        return _TORCH if readable and value is not torch.default_generator else None
    if issubclass(cls, random.Random):
        # Exactly: a subclass (`SystemRandom`) may have no state to set.
        return _PYTHON if cls is random.Random else None
    made = getattr(sys.modules.get("numpy"), "random", None)
    return _NUMPY if made is not None and issubclass(cls, (made.Generator, made.RandomState)) else None


class Generators:
    """The program's own, with their states at the start of the step."""

    def __init__(self) -> None:
        self._weak: dict[int, weakref.ref[Any]] = {}
        self._numpy: dict[int, Any] = {}
        """NumPy's take no weak reference: one that only this table holds is dropped at the next step."""
        self._states: dict[int, Any] = {}

    def follow(self, frame: FrameType | None) -> None:
        """Look for them among the variables of the frames that run."""
        for one, kind in _among(_spaces(frame)):
            if kind is _NUMPY:
                self._numpy[id(one)] = one
            else:
                self._weak[id(one)] = weakref.ref(one)

    def take(self) -> None:
        """Keep the states as they are now."""
        if self._weak or self._numpy or device_generators():
            # Else this table would keep a dropped generator for the rest of the run.
            self._numpy = {k: v for k, v in self._numpy.items() if sys.getrefcount(v) > _OURS + 1}
            self._states = {id(one): kind.read(one) for one, kind in self._alive()}

    def _alive(self) -> Iterator[tuple[Any, _Kind]]:
        for one in (*[ref() for ref in self._weak.values()], *self._numpy.values(), *device_generators()):
            kind = _kind(one)
            if kind is not None:
                yield one, kind

    def restore(self, names: Iterable[dict[str, Any]], frame: FrameType | None) -> Replayed:
        """Set back what is known, and what else is found, to its seed. Only in a process of one's own."""
        # Also those that no look has met: they are set to their seed.
        found = {id(one): (one, kind) for one, kind in (*self._alive(), *_among((*names, *_spaces(frame))))}
        replayed = []
        for key, (one, kind) in found.items():
            end = kind.read(one)
            start = self._states.get(key)
            start = kind.first(one) if start is None else start
            if start is not None:
                kind.write(one, start)
            # Both states: a generator that was not used stays at the first, one that was is back at the
            # second.
            replayed.append((one, kind, kind.read(one), end))
        return Replayed(replayed)


class Replayed:
    """Generators that were set back, with the states at which that left them, and those in which the failure was
    seen."""

    def __init__(self, each: list[tuple[Any, _Kind, Any, Any]]) -> None:
        self._each = each
        # An operator is given another Python object for the same generator.
        self._known = {_of_torch(one) for one, _, _, _ in each if isinstance(one, torch.Generator)}
        self._known.add(_of_torch(torch.default_generator))

    def same(self, used: Iterable[torch.Generator]) -> bool:
        """Whether each that was drawn from has come to where it was; `used` are those that operators were given."""
        # An operator was given a generator that nobody could set back.
        if any(_of_torch(one) not in self._known for one in used):
            return False
        for one, kind, start, end in self._each:
            now = kind.read(one)
            if not _equal(now, start) and not _equal(now, end):
                return False
        return True


def _of_torch(one: Any) -> int:
    """What stands behind a generator's Python object."""
    return int(one._cdata)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and all(_equal(v, other.get(k)) for k, v in one.items())
    same = one == other
    # Arrays compare element by element.
    return bool(same.all()) if hasattr(same, "all") else bool(same)


def _spaces(frame: FrameType | None) -> list[dict[str, Any]]:
    """The variables of the program's frames, and of the modules that they stand in."""
    found: dict[int, dict[str, Any]] = {}
    for one in of_program(frame):
        found.setdefault(id(one.f_globals), one.f_globals)
        if one.f_code.co_name != "<module>":
            found[id(one)] = frame_locals(one) or {}
    return list(found.values())


def _among(spaces: Iterable[dict[str, Any]]) -> Iterator[tuple[Any, _Kind]]:
    """Generators among values, and within what these hold."""
    seen: set[int] = set()
    level: list[Any] = [v for space in spaces for v in list(space.values())]
    for _ in range(_DEEP + 1):
        inner: list[Any] = []
        for value in level:
            if id(value) in seen or len(seen) >= _MOST_VALUES:
                continue
            seen.add(id(value))
            kind = _kind(value)
            if kind is not None:
                yield value, kind
            else:
                inner += _held(value)
        level = inner


def _held(value: Any) -> list[Any]:
    """What an object holds that may be, or lead to, a generator; nothing of modules, classes and tensors."""
    # A model's attributes are thousands, and generators are rarely kept there.
    cls = type(value)
    if issubclass(cls, (type, torch.Tensor, torch.nn.Module, type(sys))):
        return []
    # By the base class: a subclass may compute its items, or count who asks for them.
    base = next((kind for kind in (list, tuple, dict) if issubclass(cls, kind)), None)
    if base is not None:
        items = dict.values(value) if base is dict else base.__iter__(value)
        return list(items) if base.__len__(value) <= _MOST_ITEMS else []
    # A function's attributes, and those of a `functools.partial`, are made by asking: it would be pickled with them.
    space = None if callable(value) else naming.namespace(value)
    return list(space.values()) if type(space) is dict else []
