"""Starts the random numbers of Python, NumPy and torch at a known place, so that two runs can be held side by side.

Done before the program's first line, or when it imports the library: a program that seeds by itself overrides it.
"""

from __future__ import annotations

import functools
import itertools
import random
from types import ModuleType
from typing import Any

from torchvet.probes.session.import_hook import when_imported


def seed_before_program(seed: int) -> None:
    """Python's generator now; NumPy's global one, and those that are made without a seed, when it is imported. torch's
    is the session's to seed."""
    random.seed(seed)
    when_imported("numpy", lambda numpy: _seed_numpy(numpy, seed))


def _seed_numpy(numpy: ModuleType, start: int) -> None:
    numpy.random.seed(start)
    original, made = numpy.random.default_rng, itertools.count(1)

    @functools.wraps(original)
    def default_rng(seed: Any = None) -> Any:
        # Each its own: several generators of one seed would draw the same numbers.
        return original([start, next(made)] if seed is None else seed)

    numpy.random.default_rng = default_rng
