"""What came of torchvet's runs on sets of unseen programs, kept in ``casebook/tries.json`` for the scoreboard.

A row is never changed: a set is unseen only once. Rates on the same set after a change are rows of their own.
"""

from __future__ import annotations

import datetime
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from casebook.program import ROOT

FILE = Path(__file__).with_name("tries.json")
HEADING = ("date", "commit", "set", "try", "programs", "found", "line right", "holder right", "bytes right", "fixed",
           "“No fault found” over a fault", "healthy programs with an alarm", "healthy programs called so",
           "findings that are true", "figures that agree")  # fmt: skip

KINDS = {
    "memory": "memory",
    "slow": "slow steps",
    "training": "numbers and training",
    "everyday": "everyday, of all kinds",
    "ranks": "several ranks",
    "libraries": "in published libraries",
    "commits": "fix commits, by `check`",
}
"""What sets are about, with the words of README's table."""
TOTALS = ("faults", "found at first", "reassured", "alarms", "found now")


class Try(msgspec.Struct, omit_defaults=True):
    """One run of torchvet on one set. Rates are ``part of all``, empty where the set does not ask."""

    date: str
    commit: str
    set: str
    when: str
    """``first`` or ``after``: before or after anybody changed torchvet for the set."""
    programs: int
    kind: str = ""
    """A key of `KINDS`; empty for what has no rate of faults, or is a part of another row's set."""
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


def totals() -> list[list[str]]:
    """A line for each kind of fault over all its sets, a heading first. A part that no set asked about is empty."""
    rows = read()
    return [list(TOTALS), *(_total(words, [t for t in rows if t.kind == kind]) for kind, words in KINDS.items())]


def _total(words: str, rows: Sequence[Try]) -> list[str]:
    first = [t for t in rows if t.when == "first"]
    # Of a set that was run several times the last run counts.
    now = {t.set: t.found for t in rows if t.when == "after" and t.found}
    return [
        words, _sum(t.found for t in first), _sum(t.reassured for t in first), _sum(t.alarms for t in first),
        _sum(now.values()),
    ]  # fmt: skip


def _sum(rates: Iterable[str]) -> str:
    pairs = [tuple(map(int, each.split(" of "))) for each in rates if each]
    return f"{sum(p[0] for p in pairs)}/{sum(p[1] for p in pairs)}" if pairs else ""
