"""The child in which a step is done again answers in time, or is given up, and touches nothing of its parent's."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from torchvet.probes.replay.process import Failed, ask

PATIENCE = 120
"""Seconds: the machine may be busy."""


def test_the_answer_comes_back() -> None:
    assert ask(lambda: b"yes" * 100_000, PATIENCE) == b"yes" * 100_000


def test_what_a_child_changes_stays_with_it() -> None:
    held = [1]

    def work() -> bytes:
        held.append(2)
        return str(held).encode()

    assert ask(work, PATIENCE) == b"[1, 2]" and held == [1]


def test_a_child_that_takes_too_long_is_given_up() -> None:
    started = time.monotonic()
    with pytest.raises(Failed, match="too long"):
        ask(lambda: time.sleep(60) or b"", 0.5)
    assert time.monotonic() - started < 10


def test_a_child_that_dies_is_said() -> None:
    with pytest.raises(Failed, match="died"):
        ask(lambda: os._exit(3), PATIENCE)


def test_an_error_comes_back_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHVET_DEBUG", raising=False)
    assert ask(lambda: bytes(1 // 0), PATIENCE) == b"!ZeroDivisionError: integer division or modulo by zero"


def test_files_pipes_and_sockets_are_cut_off(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    here, there = socket.socketpair()
    file = (tmp_path / "f").open("w+")
    file.write("abc")
    file.flush()

    def work() -> bytes:
        print("not seen", file=sys.__stdout__, flush=True)
        os.write(2, b"not seen")
        file.write("more")
        file.flush()
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        os.write(here.fileno(), b"x")
        (tmp_path / "new").write_text("x")
        return b"done"

    assert ask(work, PATIENCE) == b"done"
    assert (tmp_path / "f").read_text() == "abc" and file.tell() == 3 and not (tmp_path / "new").exists()
    there.setblocking(False)
    with pytest.raises(BlockingIOError):
        there.recv(1)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("harm", [
    lambda p: os.remove(p), lambda p: os.rename(p, p + "2"), lambda p: os.open(p, os.O_WRONLY | os.O_TRUNC),
    lambda p: os.kill(os.getppid(), signal.SIGTERM), lambda p: os.system("true"),
])  # fmt: skip
def test_harm_is_refused(harm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHVET_DEBUG", raising=False)
    path = tmp_path / "f"
    path.write_text("abc")
    assert ask(lambda: harm(str(path)) or b"", PATIENCE).startswith(b"!PermissionError")
    assert path.read_text() == "abc"


def test_what_the_program_ignores_does_not_end_a_replay() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def hung_up() -> bytes:
        signal.raise_signal(signal.SIGHUP)
        return b"done"

    try:
        assert ask(hung_up, PATIENCE) == b"done"
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_programs_handler_for_children_hears_nothing() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGCHLD, lambda *_: heard.append(1))
    try:
        ask(lambda: b"x", PATIENCE)
        time.sleep(0.05)
        assert heard == [] and signal.getsignal(signal.SIGCHLD) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGCHLD, before)
