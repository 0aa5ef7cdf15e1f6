"""Runs small programs twice, under plain Python and under torchvet, in their own folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

FAKES = str(Path(__file__).parent / "fakes")


class Ran(NamedTuple):
    """What came out of a process."""

    out: str
    err: str
    status: int


def _depth(text: str) -> str:
    """Text without the count of repeated frames: two of the stack's thousand are the launcher's."""
    return re.sub(r"line repeated \d+ more", "line repeated", text)


class Bench:
    """A folder with programs in it, and two ways to run them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TEST_", "RANK"))}
        # No caches: a second run would not repeat what compiling a module warns of.
        self.environment.update(PYTHONPATH=FAKES, PYTHONDONTWRITEBYTECODE="1")

    def write(self, name: str, text: str) -> Path:
        """A source file, its folders made."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def command(self, *words: str, flags: tuple[str, ...] = ()) -> list[str]:
        """The command line of torchvet."""
        return [sys.executable, *flags, "-m", "torchvet", *words]

    def start(self, command: list[str], **more: Any) -> subprocess.Popen[str]:
        """A process with its output piped, its environment set."""
        environment = {**self.environment, **more.pop("env", {})}
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(command, cwd=self.folder, env=environment, text=True, **{**pipes, **more})

    def run(self, command: list[str], stdin: str = "", **more: Any) -> Ran:
        """A process, to its end."""
        with self.start(command, **more) as process:
            out, err = process.communicate(stdin, timeout=110)
        return Ran(out, err, process.returncode)

    def plain(self, *words: str, flags: tuple[str, ...] = (), **more: Any) -> Ran:
        """The program under Python itself."""
        return self.run([sys.executable, *flags, *words], **more)

    def observed(self, *words: str, flags: tuple[str, ...] = (), **more: Any) -> Ran:
        """The program under `torchvet run`, with torchvet itself saying nothing on stdout."""
        return self.run(self.command("run", "--quiet", "-o", "report.json", *words, flags=flags), **more)

    @property
    def facts(self) -> dict[str, Any]:
        """What the last observed run's recording held, by way of the stand-in diagnosis."""
        found: dict[str, Any] = json.loads((self.folder / "report.json").read_text())["facts"]["test"]
        return found

    def same(self, *words: str, **more: Any) -> Ran:
        """Run both ways and require the same output, the same errors and the same status."""
        plain = self.plain(*words, **more)
        observed = self.observed(*words, **more)
        assert [_depth(t) for t in observed[:2]] == [_depth(t) for t in plain[:2]]
        assert observed.status == plain.status
        return plain
