"""What is known of a reported failure: its folder, how it shows, and what would be the right thing to say of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from casebook.case import ProgramFolder, Severity

FOLDER = Path(__file__).resolve().parent
"""Where the failures are."""


@dataclass(frozen=True)
class Known:
    """The contents of ``case.toml``."""

    codes: list[str]
    """Codes that are true of the fault; any of them will do."""
    line: str
    """Text found in exactly one line of ``file``: the line that a user would change."""
    source: str
    """Where the failure was reported."""
    symptom: str
    """What the user sees, in a sentence."""
    shows: str
    """A pattern in what the faulty program prints, and the fixed one does not: the symptom."""
    healthy: str
    """A pattern in what the fixed program prints."""
    file: str = "faulty.py"
    """Where the line is, relative to the folder."""
    lines: list[str] = field(default_factory=list)
    """Other lines of the same file that would do as well."""
    reason: list[str] = field(default_factory=list)
    """Words of which a true explanation has at least one."""
    also: list[str] = field(default_factory=list)
    """Codes of further findings that are true of the faulty program."""
    severity: Severity = "warning"
    """The least severity expected."""
    argv: list[str] = field(default_factory=lambda: ["--steps", "60"])


@dataclass(frozen=True)
class Failure(ProgramFolder):
    """One folder."""

    known: Known

    def line_numbers(self) -> set[int]:
        """The lines, counted from 1, that may be named. Raises ValueError if a text is not in exactly one line."""
        return self.numbers(self.known.file, [self.known.line, *self.known.lines])

    def explains(self, said: str) -> bool:
        """Whether one of the words of the reason, or the beginning of one, is in what was said."""
        return any(re.search(rf"(?<!\w){re.escape(word)}", said) for word in self.known.reason)

    def shows(self, printed: str) -> bool:
        """Whether the symptom is in what a program has printed."""
        return re.search(self.known.shows, printed, re.MULTILINE) is not None

    def is_healthy(self, printed: str) -> bool:
        """Whether a program has printed what the fixed one prints, and no symptom."""
        return re.search(self.known.healthy, printed, re.MULTILINE) is not None and not self.shows(printed)


def load(folder: Path) -> Failure:
    """Read one folder."""
    return Failure(folder, msgspec.toml.decode((folder / "case.toml").read_bytes(), type=Known))


def load_all(substring: str = "", folder: Path = FOLDER) -> Iterator[Failure]:
    """The failures whose name contains the substring, in order of their names."""
    return (load(path.parent) for path in sorted(folder.glob("*/case.toml")) if substring in path.parent.name)
