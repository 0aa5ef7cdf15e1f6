"""Programs are run to their end; one of several ranks that hangs once is begun again, one that hangs is given up."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from casebook import run
from casebook.program import Program

ONCE = "import pathlib, time; p = pathlib.Path('seen'); hung = p.exists(); p.touch(); hung or time.sleep(60); print(1)"


@pytest.mark.parametrize(
    ("imported", "text", "status", "stdout"),
    [("torch.distributed", ONCE, 0, "1\n"), ("torch.distributed", "import time; time.sleep(60)", -1, ""),
     ("torch.optim", ONCE, -1, "")],
)  # fmt: skip
def test_what_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imported: str, text: str, status: int, stdout: str
) -> None:
    monkeypatch.setattr(run, "HANGS", 3)
    (tmp_path / "program.py").write_text(f"import {imported}\n")
    done = run.started([sys.executable, "-S", "-c", text], tmp_path)
    assert (done.status, done.stdout) == (status, stdout)
    assert bool(status) is ("given up" in done.complaint)


def test_a_case_of_several_ranks_runs_on_as_many_bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(run, "started", lambda command, folder: commands.append(command))
    for command in (("run", "--nproc", "4"), ("run",)):
        run.bare(Program(tmp_path, "faulty"), ["--steps", "9"], command, "python")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    assert commands == [["python", *launcher, "faulty.py", "--steps", "9"], ["python", "faulty.py", "--steps", "9"]]


ABORTS = """import pathlib, sys; p = pathlib.Path('seen'); first = {always} or not p.exists(); p.touch(); print(1)
if first: sys.stderr.write('terminate called without an active exception'); sys.exit(1)"""


@pytest.mark.parametrize(
    ("imported", "always", "status"),
    [("torch.distributed", False, 0), ("torch.distributed", True, 1), ("torch.optim", False, 1)],
)
def test_a_rank_that_is_aborted_after_its_program(tmp_path: Path, imported: str, always: bool, status: int) -> None:
    """torch does so at times, with nobody watching; where it always happens it is the program's own end."""
    (tmp_path / "program.py").write_text(f"import {imported}\n")
    done = run.started([sys.executable, "-S", "-c", ABORTS.format(always=always)], tmp_path)
    assert (done.status, done.stdout) == (status, "1\n")
