"""Programs are run to their end; one that hangs once is begun again, one that hangs is given up."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from casebook import run

ONCE = "import pathlib, time; p = pathlib.Path('seen'); hung = p.exists(); p.touch(); hung or time.sleep(60); print(1)"


@pytest.mark.parametrize(("text", "status", "stdout"), [(ONCE, 0, "1\n"), ("import time; time.sleep(60)", -1, "")])
def test_what_hangs_is_begun_again_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, status: int, stdout: str
) -> None:
    monkeypatch.setattr(run, "HANGS", 3)
    done = run.started([sys.executable, "-S", "-c", text], tmp_path)
    assert (done.status, done.stdout) == (status, stdout)
    assert bool(status) is ("given up 2 times" in done.complaint)
