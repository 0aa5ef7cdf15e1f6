"""What a look at the environment gives: the value found, the value expected, why it matters, what to do."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["ok", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = ("ok", "info", "warning", "error")
"""Mildest first."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One known trap and whether it is set here. `why` and `fix` are empty where the level is `ok`."""

    name: str
    level: Level
    found: str
    expected: str = ""
    why: str = ""
    fix: str = ""


def ok(name: str, found: str) -> Check:
    """A check that found nothing."""
    return Check(name=name, level="ok", found=found)
