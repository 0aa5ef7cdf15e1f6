"""Runs a small program as a trial, in a process of its own: an audit hook stays for a process's life."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchvet.undo.folders import Held, new_folder
from torchvet.undo.rollback import Undone, roll_back

_SOURCE = str(Path(__file__).parents[2] / "src")
_BEGIN = """
import json, os, shutil, sqlite3, sys
from pathlib import Path
sys.path.insert(0, {source!r})
from torchvet.undo import journal
from torchvet.undo.audit_hook import Hearing
hearing = Hearing(journal.Notes(Path({folder!r}), (), (os.getcwd(),)))
hearing.install()
"""
LONG_AGO = 10**18
"""When the files of a place were last changed, in nanoseconds."""


@dataclass
class Tried:
    """A trial that has ended and is still to be undone: what was in its place before, and the status it ended with."""

    held: Held
    status: int
    errors: str

    @property
    def copies(self) -> list[Path]:
        """What the trial keeps for itself of files' contents."""
        return [p for p in self.held.folder.iterdir() if p.name not in ("log.jsonl", "alive")]

    def undone(self, **how: Any) -> Undone:
        """Undo it."""
        undone = roll_back(self.held.folder, **how)
        self.held.close()
        return undone


def begin(held: Held) -> str:
    """The first lines of a program that is heard."""
    return _BEGIN.format(source=_SOURCE, folder=str(held.folder))


def run(place: Path, text: str, **environment: str) -> Tried:
    """Run a program in a folder, heard from its first line."""
    held = new_folder()
    program = begin(held) + textwrap.dedent(text)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=place, env={**os.environ, **environment}, capture_output=True, text=True,
        timeout=110,
    )  # fmt: skip
    return Tried(held, done.returncode, done.stderr)


def tree(place: Path) -> dict[str, Any]:
    """All that lies in a folder, itself included: kind, content, permissions and, but for links, the time of change."""
    found: dict[str, Any] = {}
    for path in [place, *sorted(place.rglob("*"))]:
        seen = path.lstat()
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        else:
            content = path.read_bytes() if path.is_file() else None
            found[str(path)] = (content, stat.S_IMODE(seen.st_mode), seen.st_mtime_ns)
    return found


def fill(place: Path) -> None:
    """Lay out what a user may have in a folder."""
    for folder in ("runs/old/deep", "runs/last", "others"):
        (place / folder).mkdir(parents=True)
    for name, text in {
        "best.pt": "weights of last night", "log.jsonl": '{"step": 1}\n', "history.json": "[1]", "closed.txt": "ro",
        "runs/old/deep/a": "a", "runs/last/log": "l", "others/x": "another's",
    }.items():  # fmt: skip
        (place / name).write_text(text)
    os.symlink("runs/old", place / "latest")
    os.symlink("best.pt", place / "current")
    os.symlink("../../best.pt", place / "runs/old/link")
    os.chmod(place / "best.pt", 0o640)
    os.chmod(place / "closed.txt", 0o444)
    for path in [place, *place.rglob("*")]:
        if not path.is_symlink():
            os.utime(path, ns=(LONG_AGO, LONG_AGO + 12345))
