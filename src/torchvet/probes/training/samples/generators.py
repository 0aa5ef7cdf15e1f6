"""The random generators of a loader's worker: Python's, NumPy's and torch's own, and those that its data set keeps."""

from __future__ import annotations

import functools
import hashlib
import itertools
import random
import sys
import types
from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

from torchvet.probes.base import frames
from torchvet.probes.base.callers import place_in
from torchvet.probes.base.kit import Place
from torchvet.probes.objects import naming

_OBJECTS, _DEEP, _ITEMS, _MOST = 2_000, 8, 64, 16
"""Objects that are looked at for generators, how deep, items of a container, and generators that are kept."""
_TWISTS = 2_000
"""Times 624 numbers that a batch may have drawn: then it is not known whether it has. Replaying them takes 20 ms."""
_WORDS, _BITS = 624, 32
"""Of the Mersenne Twister."""
_SKIPPED = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType, torch.Tensor, torch.dtype)


class State(NamedTuple):
    """Where a generator is. `seed` is what seeding changes and drawing does not; of a Mersenne Twister, which has no
    such part, all its words."""

    digest: str
    seed: bytes
    position: int | None = None
    """Of a Mersenne Twister: which of its words is next."""


class Kept(NamedTuple):
    """A generator, and who keeps it under which name: `name` is the whole path, `owner` empty for one of a module."""

    generator: Any
    name: str
    owner: str = ""
    attribute: str = ""
    place: Place | None = None
    """A line of the class that keeps it, or of the function that reads it."""


def of_libraries() -> Iterator[Kept]:
    """Those that torch seeds in each worker. Python's own functions draw from one that has no public name."""
    yield Kept(random, "random")
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        yield Kept(numpy.random, "numpy.random")
    yield Kept(torch.default_generator, "torch")


def state_of(generator: Any) -> State | None:
    """Its state; None where it is of an unknown kind."""
    if isinstance(generator, torch.Generator):
        if generator.device.type != "cpu":
            return None
        return State(_digest(generator.get_state().numpy().tobytes()), generator.initial_seed().to_bytes(8, "little"))
    if generator is random or type(generator) is random.Random:
        _, words, gauss = generator.getstate()
        return _twister(array("I", words[:-1]).tobytes(), words[-1], gauss)
    return _of_numpy(generator)


def _of_numpy(generator: Any) -> State | None:
    legacy = getattr(generator, "get_state", None)
    state = legacy(legacy=False) if legacy is not None else generator.bit_generator.state
    inner = state["state"]
    if state["bit_generator"] == "MT19937":
        gauss = state.get("gauss") if state.get("has_gauss") else None
        return _twister(inner["key"].astype("uint32").tobytes(), int(inner["pos"]), gauss)
    if "inc" in inner:
        return State(_digest(repr(state).encode()), repr(inner["inc"]).encode())
    return None


def _twister(words: bytes, position: int, gauss: Any) -> State:
    return State(_digest(words + repr((position, gauss)).encode()), words, position)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def drew(before: State, after: State) -> bool | None:
    """Whether numbers were drawn in between; None where it was seeded anew, or that is not known."""
    if before.digest == after.digest:
        return False
    if before.position is None or after.position is None:
        return True if before.seed == after.seed else None
    if before.seed == after.seed:
        # The second one of two normal numbers is kept, and not drawn.
        return True if after.position >= before.position else None
    return True if _leads_to(before.seed, after.seed) else None


def _leads_to(before: bytes, after: bytes) -> bool:
    """Whether drawing takes a Mersenne Twister from these words to those."""
    words, wanted = tuple(array("I", before)), tuple(array("I", after))
    first = _tempered(wanted[0])
    twister = random.Random()
    twister.setstate((3, (*words, _WORDS), None))
    for _ in range(_TWISTS):
        # One turn: the lowest bits are what it drew first.
        if twister.getrandbits(_BITS * _WORDS) & (1 << _BITS) - 1 == first:
            return tuple(twister.getstate()[1][:-1]) == wanted
    return False


def _tempered(word: int) -> int:
    """The number that the Mersenne Twister makes of a word."""
    word ^= word >> 11
    word ^= (word << 7) & 0x9D2C5680
    word ^= (word << 15) & 0xEFC60000
    return word ^ (word >> 18)


def kept_by(*roots: Any) -> list[Kept]:
    """Generators that objects and functions keep: in attributes, containers, closures, and names of their modules."""
    found: list[Kept] = []
    # The one behind `random.random`, torch's own and NumPy's are not theirs.
    seen: set[int] = {id(one) for one in (None, torch.default_generator, *_behind_libraries())}
    waiting = deque((Kept(root, _name(root)), 0) for root in roots)
    for _ in range(_OBJECTS):
        if not waiting or len(found) >= _MOST:
            break
        one, deep = waiting.popleft()
        value = one.generator
        # By type: `isinstance` would ask what stands for another object for its class.
        if id(value) in seen or issubclass(type(value), _SKIPPED):
            continue
        seen.add(id(value))
        if _is_generator(value):
            found.append(one)
        elif deep < _DEEP:
            waiting.extend((inner, deep + 1) for inner in _within(one, seen))
    return found


def _behind_libraries() -> Iterator[Any]:
    yield random.random.__self__  # type: ignore[attr-defined]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        yield numpy.random.rand.__self__


def _is_generator(value: Any) -> bool:
    if type(value) in (random.Random, torch.Generator):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) in (numpy.random.Generator, numpy.random.RandomState)


def _name(root: Any) -> str:
    while isinstance(root, functools.partial):
        root = root.func
    named = root if isinstance(root, (types.FunctionType, types.MethodType)) else type(root)
    return str(getattr(named, "__name__", ""))


def _within(one: Kept, seen: set[int]) -> Iterator[Kept]:
    """What an object holds; of functions only the program's own are looked into."""
    value, kind = one.generator, type(one.generator)
    # Those of Python's own alone: to go through others may run code of the program's.
    if kind in (list, tuple):
        yield from (one._replace(generator=item, name=f"{one.name}[{i}]") for i, item in enumerate(value[:_ITEMS]))
    elif kind in (dict, OrderedDict):
        for key, item in itertools.islice(value.items(), _ITEMS):
            yield one._replace(generator=item, name=f"{one.name}[{key!r}]")
    elif kind is types.MethodType:
        yield Kept(value.__self__, _name(value.__self__))
        yield Kept(value.__func__, one.name)
    elif kind is functools.partial:
        yield from (one._replace(generator=inner) for inner in (value.func, value.args, value.keywords))
    elif kind is types.FunctionType:
        yield from _of_function(value)
    else:
        yield from _of_instance(one, seen)


def _of_instance(one: Kept, seen: set[int]) -> Iterator[Kept]:
    """Its attributes, and what the methods of its class read in their module."""
    value = one.generator
    cls = type(value)
    made = _line_of(cls)
    for key, inner in itertools.islice(list((naming.namespace(value) or {}).items()), _ITEMS):
        if isinstance(key, str):
            yield Kept(inner, f"{one.name}.{key}", cls.__name__, key, made)
    for base in cls.__mro__:
        if id(base) not in seen:
            seen.add(id(base))
            for method in vars(base).values():
                function = getattr(method, "__func__", method)
                if isinstance(function, types.FunctionType):
                    yield from _of_function(function)


def _line_of(cls: type) -> Place | None:
    """A line of the program's own class, by which its file is known."""
    for base in cls.__mro__:
        function = vars(base).get("__init__")
        if isinstance(function, types.FunctionType) and _is_users(function):
            return place_in(function.__code__, function.__code__.co_firstlineno)
    return None


def _is_users(function: types.FunctionType) -> bool:
    return frames.owner(function.__code__.co_filename) == frames.USER


def _of_function(function: types.FunctionType) -> Iterator[Kept]:
    if not _is_users(function):
        return
    code = function.__code__
    place = place_in(code, code.co_firstlineno)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield Kept(cell.cell_contents, name, "", name, place)
        except ValueError:  # not bound yet
            continue
    for inner in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield Kept(inner, f"{function.__name__}'s default", "", "", place)
    for name in _names_in(code):
        if name in function.__globals__:
            yield Kept(function.__globals__[name], name, "", name, place)


def _names_in(code: types.CodeType) -> Iterable[str]:
    """Names that a function reads, those of functions within it as well."""
    inner = (_names_in(one) for one in code.co_consts if isinstance(one, types.CodeType))
    return dict.fromkeys(itertools.chain(code.co_names, *inner))
