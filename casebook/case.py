"""What a case is: its folder, its programs, and what must be said of the faulty one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from casebook.program import Program
from casebook.twins import built

CASES = Path(__file__).resolve().parent / "cases"
"""Where the cases are."""

Severity = Literal["info", "warning", "error"]

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")
"""From least to most."""


@dataclass(frozen=True)
class Expectation:
    """The contents of ``case.toml``."""

    code: str
    """Of the finding; END where a rank is killed (`report.Report.said`)."""
    severity: Severity
    """The least severity expected, at a memory limit of 24 GiB."""
    line: str
    """Text found in exactly one line of ``file``: the line that a user would change."""
    file: str = "faulty.py"
    """Where that line is, relative to the folder of the case."""
    lines: list[str] = field(default_factory=list)
    """Other lines of the same file that would do as well, given likewise."""
    holder: list[str] = field(default_factory=list)
    """The holder's name contains one of these; empty where Python has no name for it."""
    bytes: int | None = None
    """What the finding must have measured, worked out by hand; None where the case does not ask."""
    count: bool = True
    """Whether bytes per step are compared with the independent count."""
    argv: list[str] = field(default_factory=lambda: ["--steps", "60"])
    command: list[str] = field(default_factory=lambda: ["run"])
    """The verb of torchvet and its options. A verb other than `run` keeps what the programs print to itself. With
    `--nproc N` the programs run on N ranks, also where they run bare."""
    also_allowed: list[str] = field(default_factory=list)
    """Codes of further findings that are true of the faulty program."""


@dataclass(frozen=True)
class ProgramFolder:
    """A folder with a faulty program and healthy ones."""

    folder: Path

    @property
    def name(self) -> str:
        """The folder's name, as ``-k`` sees it."""
        return self.folder.name

    @cached_property
    def built(self) -> Path:
        """The folder that has all programs as files."""
        return built(self.folder)

    @property
    def faulty(self) -> Program:
        """The program with the fault."""
        return Program(self.built, "faulty")

    @property
    def fixed(self) -> Program:
        """The same program without it."""
        return Program(self.built, "fixed")

    def numbers(self, file: str, snippets: Iterable[str]) -> set[int]:
        """The numbers, from 1, of the lines of a file that have these snippets.

        Raises ValueError if a snippet is not in exactly one line.
        """
        lines = (self.built / file).read_text().splitlines()
        return {only_line(lines, snippet) for snippet in snippets}


@dataclass(frozen=True)
class Case(ProgramFolder):
    """One folder below ``cases``."""

    expect: Expectation

    @property
    def lookalikes(self) -> list[Program]:
        """Programs that resemble the faulty one and are healthy."""
        return [Program(self.built, path.stem) for path in sorted(self.built.glob("lookalike_*"))]

    @property
    def programs(self) -> list[Program]:
        """All of them, the faulty one first."""
        return [self.faulty, self.fixed, *self.lookalikes]

    def line_numbers(self) -> set[int]:
        """The lines, counted from 1, that a finding may point at."""
        return self.numbers(self.expect.file, [self.expect.line, *self.expect.lines])


def only_line(lines: list[str], snippet: str) -> int:
    """The number, from 1, of the line that contains the snippet. Raises ValueError unless it is exactly one."""
    numbers = [number for number, line in enumerate(lines, start=1) if snippet in line]
    if len(numbers) != 1:
        raise ValueError(f"{snippet!r} is in {len(numbers)} lines, not in one")
    return numbers[0]


def load(folder: Path) -> Case:
    """Read one case. On Python 3.10 reading TOML needs ``tomli``, which pytest brings along."""
    return Case(folder, msgspec.toml.decode((folder / "case.toml").read_bytes(), type=Expectation))


def load_all(substring: str = "", folder: Path = CASES) -> Iterator[Case]:
    """The cases of the folder whose name contains the substring, in order of their names."""
    return (load(path.parent) for path in sorted(folder.glob("*/case.toml")) if substring in path.parent.name)
