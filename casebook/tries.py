"""What came of torchvet's runs on sets of unseen programs, kept in ``casebook/tries.json`` for the scoreboard.

A row is never changed: a set is unseen only once. Rates on the same set after a change are rows of their own.
"""

from __future__ import annotations

import datetime
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from casebook.program import ROOT

FILE = Path(__file__).with_name("tries.json")
HEADING = ("date", "commit", "set", "try", "programs", "found", "line right", "holder right", "bytes right", "fixed",
           "“No fault found” over a fault", "healthy programs with an alarm", "healthy programs called so",
           "findings that are true", "figures that agree")  # fmt: skip


class Try(msgspec.Struct, omit_defaults=True):
    """One run of torchvet on one set. Rates are ``part of all``, empty where the set does not ask."""

    date: str
    commit: str
    set: str
    when: str
    """``first`` or ``after``: before or after anybody changed torchvet for the set."""
    programs: int
    found: str = ""
    line: str = ""
    holder: str = ""
    bytes: str = ""
    fixed: str = ""
    reassured: str = ""
    alarms: str = ""
    clean: str = ""
    true: str = ""
    """Of the findings at ``warning`` or above that somebody has read beside the code or the file."""
    figures: str = ""
    """Of the figures that torchvet prints and a program without any of its code has worked out."""


def rate(right: Sequence[bool | None]) -> str:
    """How many of those that were asked are right."""
    asked = [each for each in right if each is not None]
    return f"{sum(asked)} of {len(asked)}" if asked else ""


def here() -> tuple[str, str]:
    """Today's date and the commit that is checked out."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    return datetime.date.today().isoformat(), commit


def read() -> list[Try]:
    """All rows, the oldest first."""
    return msgspec.json.decode(FILE.read_bytes(), type=list[Try]) if FILE.exists() else []


def keep(row: Try) -> None:
    """Add a row."""
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode([*read(), row])) + b"\n")


def table() -> list[list[str]]:
    """The rows as cells, a heading first."""
    rows = [
        [t.date, t.commit, t.set, t.when, str(t.programs), t.found, t.line, t.holder, t.bytes, t.fixed, t.reassured,
         t.alarms, t.clean, t.true, t.figures] for t in read()
    ]  # fmt: skip
    return [list(HEADING), *rows]
