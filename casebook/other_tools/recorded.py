"""What other tools have been found to say, as it is kept."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from casebook.case import Case

RECORDED = Path(__file__).with_name("recorded.json")


class Verdict(msgspec.Struct, array_like=True, frozen=True):
    """What one tool did with one program."""

    verdict: str
    detail: str = ""
    """The kinds of its remarks, or why it was not run."""


class Entry(msgspec.Struct):
    """What was said of one case's faulty program."""

    program: str
    """The fingerprint of what was judged."""
    verdicts: dict[str, Verdict] = {}


class Recorded(msgspec.Struct):
    """All of it, with the versions of the tools."""

    tools: dict[str, str] = {}
    cases: dict[str, Entry] = {}

    def entry(self, name: str, program: str) -> Entry:
        """The entry of a case; a new one where there is none or the program was another."""
        if name not in self.cases or self.cases[name].program != program:
            self.cases[name] = Entry(program)
        return self.cases[name]


def fingerprint(case: Case) -> str:
    """Changes with what a verdict depends on: the faulty and fixed programs, and what the case expects."""
    digest = hashlib.sha256()
    for file in [*case.faulty.files, *case.fixed.files]:
        digest.update(file.read_bytes())
    digest.update((case.folder / "case.toml").read_bytes())
    return digest.hexdigest()[:12]


def read(path: Path = RECORDED) -> Recorded:
    """What is kept; nothing where there is no file."""
    return msgspec.json.decode(path.read_bytes(), type=Recorded) if path.exists() else Recorded()


def write(path: Path, recorded: Recorded) -> None:
    """Keep it, one case a line, in the order of names."""
    cases = ",\n".join(
        f"  {msgspec.json.encode(name).decode()}: {msgspec.json.encode(entry, order='sorted').decode()}"
        for name, entry in sorted(recorded.cases.items())
    )
    tools = msgspec.json.encode(recorded.tools, order="sorted").decode()
    path.write_text(f'{{"tools": {tools},\n"cases": {{\n{cases}\n}}}}\n')
