"""The states of the global random generators, as numbers that can be compared, and who sets them."""

from __future__ import annotations

import ctypes
import os
import random
import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import torch

from torchvet.probes.base import frames
from torchvet.probes.base.kit import outward

_MOST_FRAMES = 40
_SEEDS = re.compile(r"seed|determinis|reproduc|(^|_)rng", re.IGNORECASE)
"""How functions are called that seed, and do nothing else."""
_SEARCHES = "lbfgs.py"
"""An optimizer that calls its closure many times in a step, each time with the same random numbers on purpose."""


def _torch_state() -> int:
    state = torch.default_generator.get_state()
    # Without NumPy, and without a list of five thousand numbers.
    return hash(ctypes.string_at(state.data_ptr(), state.numel()))


def _python_state() -> int:
    return hash(random.getstate())


def _numpy_state() -> int:
    state: Any = sys.modules["numpy.random"].get_state()
    # A tuple with an array, unless the program has put another kind of generator in the place of the usual one.
    parts = state if isinstance(state, tuple) else (repr(state),)
    return hash(tuple(part.tobytes() if hasattr(part, "tobytes") else part for part in parts))


STATES: dict[str, Callable[[], int]] = {"torch": _torch_state, "numpy": _numpy_state, "random": _python_state}
"""By generator: its state now, which changes with every number drawn. Tens of microseconds."""


class Caller(NamedTuple):
    """Who has set a generator: the user's line, and the line within a function that only seeds and was called there."""

    frame: FrameType
    inner: FrameType | None

    @property
    def key(self) -> tuple[int, int]:
        """Tells a call under way from others."""
        return key_of(self.frame)


def key_of(frame: FrameType) -> tuple[int, int]:
    """Tells a call that is under way from others."""
    return id(frame), id(frame.f_code)


def caller(frame: FrameType | None) -> Caller | str:
    """Who has set a generator, from this frame outward; `torch` if torch has, which puts back what it has changed, and
    `library` if another package has, by a function that does more than to seed, or if nobody knows."""
    users: list[FrameType] = []
    for number, one in enumerate(outward(frame)):
        whose, code = frames.owner(one.f_code.co_filename), one.f_code
        if number > _MOST_FRAMES:
            break
        if whose == frames.TORCH and (not users or os.path.basename(code.co_filename) == _SEARCHES):
            return "torch"
        if whose == frames.INSTALLED and not users and not _SEEDS.search(code.co_name):
            return "library"
        if whose == frames.USER:
            users.append(one)
    if not users:
        return "library"
    # A helper is called from many lines; which of them is at fault is told by the line that calls it.
    at = next((n for n, one in enumerate(users) if not _SEEDS.search(one.f_code.co_name)), 0)
    return Caller(users[at], users[0] if at else None)
