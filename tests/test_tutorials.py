"""The tutorials do what they say: their files are written, their commands run, and what they show is printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FIGURE = re.compile(r"\d[\d.,]*(?: (?:bytes|[kMGT]?B|[mu]?s|min|GiB|MiB)\b)?(?: \d+ s\b)?")
"""What another machine measures otherwise."""


def masked(text: str) -> str:
    """One line of words, figures left out: how text wraps depends on them."""
    return " ".join(_FIGURE.sub("#", text).split())


def commands(console: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with what the page shows of its output."""
    parts = re.split(r"(?m)^\$ (.*)\n", console)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def missing(shown: str, printed: str) -> list[str]:
    """Parts of what a page shows, between its `...`, that were not printed in this order."""
    rest, lost = masked(printed), []
    for part in filter(None, (masked(p) for p in shown.split("..."))):
        _, found, after = rest.partition(part)
        if found:
            rest = after
        else:
            lost.append(part)
    return lost


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_tutorial_shows_what_is_printed(page: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    ran = 0
    for kind, title, text in _BLOCK.findall(page.read_text("utf-8")):
        if title:
            (tmp_path / title).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / title).write_text(text, "utf-8")
        for command, shown in commands(text) if kind == "console" else ():
            program, *arguments = shlex.split(command)
            assert program == "torchvet"
            done = subprocess.run(
                [sys.executable, "-m", "torchvet", *arguments],
                **{"cwd": tmp_path, "env": environment, "text": True, "timeout": 300},
                **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT},
            )
            assert missing(shown, done.stdout) == [], f"$ {command}\n{done.stdout}"
            assert done.returncode != 2, f"$ {command}\n{done.stdout}"
            ran += 1
    assert ran > 1


@pytest.mark.parametrize(
    ("shown", "printed", "lost"),
    [
        ("a 12.5 MB leak\n...\nend\n", "a 3 kB\nleak\nmore\nend", []),
        ("a leak\n...\nend\n", "end\na leak", ["end"]),
        ("no such line\n", "another line", ["no such line"]),
        ("...\n", "anything", []),
    ],
)
def test_what_is_missing_is_seen(shown: str, printed: str, lost: list[str]) -> None:
    assert missing(shown, printed) == lost
