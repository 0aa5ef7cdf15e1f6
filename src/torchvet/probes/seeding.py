"""Starts the random numbers of Python, NumPy and torch at a known place, so that two runs can be held side by side.

Done before the program's first line, or when it imports the library: a program that seeds by itself overrides it.
"""

from __future__ import annotations

import random

from torchvet.probes.import_hook import when_imported


def seed_before_program(seed: int) -> None:
    """Python's generator now, NumPy's global one when it is imported. torch's is the session's to seed."""
    random.seed(seed)
    when_imported("numpy", lambda numpy: numpy.random.seed(seed))
