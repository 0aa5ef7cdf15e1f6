"""Temporary folders: held while their process lives, and removed by the next one after it was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from torchvet.scratch import Scratch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="locks that the system takes away with a process")
HOLDING = """
import sys, tempfile, time
tempfile.tempdir = sys.argv[1]
from torchvet.scratch import Scratch
print(Scratch(sys.argv[2] if len(sys.argv) > 2 else None).path, flush=True)
time.sleep(100)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders lie."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def another(temporary: Path, *name: str) -> tuple[subprocess.Popen[str], Path]:
    """Another process that has a folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(temporary), *name], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def killed(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_a_folder_is_gone_at_the_end(temporary: Path) -> None:
    with Scratch() as folder:
        (folder / "file").write_text("x")
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("name", [(), ("ranks-7",)])
def test_what_a_killed_process_has_left_is_removed_by_the_next(temporary: Path, name: tuple[str, ...]) -> None:
    process, left = another(temporary, *name)
    (left / "deep").mkdir()
    (left / "deep" / "file").write_text("x")
    with Scratch():
        assert left.is_dir(), "its process lives"
    killed(process)
    with Scratch() as folder:
        assert list(temporary.iterdir()) == [folder]


def test_a_shared_folder_stays_while_one_of_those_that_share_it_lives(temporary: Path) -> None:
    (first, left), (second, same) = another(temporary, "ranks-7"), another(temporary, "ranks-7")
    assert left == same and left.stat().st_mode & 0o077 == 0
    killed(first)
    with Scratch():
        assert left.is_dir()
    killed(second)
    with Scratch():
        assert not left.exists()


def test_what_is_not_torchvets_is_left_alone(temporary: Path) -> None:
    (temporary / "torchvet-notes").mkdir()
    (temporary / "torchvet-notes" / "mine.txt").write_text("x")
    (temporary / "elsewhere").mkdir()
    (temporary / "elsewhere" / ".held").write_text("")
    (temporary / "torchvet-link").symlink_to(temporary / "elsewhere")
    (temporary / "torchvet-file").write_text("x")
    before = {p.name for p in temporary.iterdir()}
    with Scratch():
        pass
    assert {p.name for p in temporary.iterdir()} == before
    assert (temporary / "elsewhere" / ".held").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_shared_folder_of_another_user_is_refused(temporary: Path) -> None:
    (temporary / "torchvet-ranks-7").mkdir()
    os.chown(temporary / "torchvet-ranks-7", 12345, 12345)
    with pytest.raises(PermissionError, match="is not yours"):
        Scratch("ranks-7")
