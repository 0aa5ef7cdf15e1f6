"""What a step starts from and changes: random states, and buffers that a forward pass writes."""

from __future__ import annotations

import ctypes
import pickle
import platform
import random
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import torch

from torchvet.probes.base import frames
from torchvet.probes.internals import private
from torchvet.probes.internals.finite import is_finite
from torchvet.probes.replay.generators import Generators

S = TypeVar("S")
_MOST_BYTES = 1 << 20
"""Buffers of a model that are copied each step: running statistics are small, masks and tables are not."""


class _PythonState:
    """The state of Python's generator, copied only where it has changed: as a tuple of 625 numbers it takes as long as
    everything else that is kept.

    Whether it has shows in CPython's own structure (`RandomObject` in Modules/_randommodule.c: an int, how many of
    the 624 words behind it have been used), which is believed only where it holds what `getstate()` says.
    """

    def __init__(self) -> None:
        self._state = random.getstate()
        self._told: Any = None
        self._of: Any = None
        inner: Any = vars(random).get("_inst")
        if platform.python_implementation() == "CPython" and type(inner) is random.Random:
            # Right behind the object's header.
            words = (ctypes.c_uint32 * 625).from_address(id(inner) + object.__basicsize__)
            # Believed only if it shows what Python says: another build may lay it out in another way.
            if (*words[1:], words[0]) == random.getstate()[1] == inner.getstate()[1]:
                self._told, self._of = words, inner
        self._now = self._mark()

    def _mark(self) -> Any:
        """What changes with every number drawn; None where that is not known."""
        words = self._told
        # The position comes round after 624 numbers, when the words are others. `gauss` keeps its second number apart.
        return None if words is None else (words[0], words[1], words[2], self._of.gauss_next)

    def take(self) -> Any:
        """The state as it is now."""
        mark = self._mark()
        if mark is None or mark != self._now:
            self._state, self._now = random.getstate(), mark
        return self._state


class _Drawn(Generic[S]):
    """The state of a generator that is slow to read: read at every step only as long as it is seen to change.

    Where it was the same at two readings, those between the next ones are left out until one shows another.
    """

    def __init__(self, read: Callable[[], S], same: Callable[[S, S], bool]) -> None:
        self._read = read
        self._same = same
        self._still = False
        self.state: S | None = None

    def take(self, sure: bool) -> None:
        """Keep the state as it is now; `sure` to read it in any case."""
        if sure or not self._still:
            last, self.state = self.state, self._read()
            # Only two sure readings in a row say that nobody draws.
            self._still = sure and last is not None and self._same(last, self.state)


class Kept:
    """The state before a step: `take()` at its start, `restore()` in the process that does it again."""

    def __init__(self) -> None:
        self._torch = _Drawn(torch.default_generator.get_state, torch.equal)
        self._python: Any = None
        self._generator = _PythonState()
        self._numpy = _Drawn(_numpy_state, _equal)
        self._uses_numpy = False
        self.generators = Generators()
        """Those that the program made for itself."""
        self._modules = 0
        self._buffers: list[weakref.ref[torch.Tensor]] = []
        self._copies: list[torch.Tensor] = []

    def follow(self, modules: Iterable[torch.nn.Module]) -> None:
        """Copy the buffers of these modules from now on."""
        found: dict[int, torch.Tensor] = {}
        for module in modules:
            for part in module.modules():
                if (
                    getattr(part, "running_mean", None) is not None
                    or getattr(part, "num_batches_tracked", None) is not None
                ):
                    found.update((id(b), b) for b in part._buffers.values() if b is not None)
        buffers = list(found.values())
        # None rather than some: half of the statistics would be those of another step.
        if sum(b.nbytes for b in buffers) > _MOST_BYTES:
            buffers = []
        # A model that the program drops is not to live on here.
        self._buffers = [weakref.ref(b) for b in buffers]
        # Going through all modules' names takes long; new ones come by import only.
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            self._uses_numpy = _uses_numpy()
        # An evaluation under inference_mode may be where this is called: its tensors could not be written to later.
        with torch.inference_mode(False):
            self._copies = [b.detach().clone() for b in buffers]

    def take(self, sure: bool = True) -> None:
        """Keep the state as it is now. If not `sure`, generators that stand still are not read again."""
        self._torch.take(sure)
        self._python = self._generator.take()
        self.generators.take()
        if self._uses_numpy:
            self._numpy.take(sure)
        buffers = self._alive() if self._buffers else []
        if buffers:
            with torch.no_grad():
                # One call for all: a loop over a large model's buffers would cost more than the
                # copying.
                private.copy_each(self._copies, buffers)

    def begins_bad(self) -> bool:
        """Whether a buffer that is copied was not finite when the step began."""
        return any(not is_finite(copy) for copy in self._copies)

    def restore(self) -> None:
        """Put the kept state back. Only in a process of one's own."""
        if self._torch.state is not None:
            torch.set_rng_state(self._torch.state)
        if self._python is not None:
            random.setstate(self._python)
        if self._uses_numpy and self._numpy.state is not None:
            sys.modules["numpy"].random.set_state(self._numpy.state)
        with torch.no_grad():
            for buffer, copy in zip(self._alive(), self._copies, strict=False):
                # `.data`, so that the version does not rise: graphs that saved the buffer stay valid.
                buffer.data.copy_(copy)

    def _alive(self) -> list[torch.Tensor]:
        """The buffers that are followed; none where one has gone with its model."""
        found = [b for b in (ref() for ref in self._buffers) if b is not None]
        # Copies go by position.
        return found if len(found) == len(self._buffers) else []


def _numpy_state() -> Any:
    """A tenth of a millisecond after a step has emptied the caches."""
    return sys.modules["numpy"].random.get_state()


def _equal(one: Any, other: Any) -> bool:
    return pickle.dumps(one) == pickle.dumps(other)  # the arrays in it do not compare as one


def _uses_numpy() -> bool:
    """Whether a module of the program's own has numpy, or numpy.random, among its names: torch always imports it."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "random"):
        return False
    wanted, found = (numpy, numpy.random), False
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and frames.owner(file) == frames.USER:
            found = found or any(value is one for value in list(vars(module).values()) for one in wanted)
    return found
