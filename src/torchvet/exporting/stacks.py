"""Weights by stack: what a flame graph shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

Unit = Literal["bytes", "seconds"]


class StackFrame(NamedTuple):
    """What a box of the flame graph stands for; `path` and `line` are left out where there is none."""

    name: str
    path: str = ""
    line: int = 0


Stack = tuple[StackFrame, ...]
"""Outermost first."""


class Profile(NamedTuple):
    """One graph: weights by stack, in one unit."""

    name: str
    unit: Unit
    weights: Iterable[tuple[Stack, float]]
