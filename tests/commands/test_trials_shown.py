"""`amp`, `whatif` and `fix --verify` say on a terminal which trial runs; the trials here run nothing."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchvet.commands import main
from torchvet.supervisor import trial_sandbox

AMP = [f"run {n} of 3, {mode}" for n, mode in enumerate(("float32", "float16", "bfloat16"), 1)]
WHATIF = ["run 1 of 2, as it is", "run 2 of 2, half the batch"]
VERBS = [(("amp", "--trials", "1"), AMP), (("whatif",), WHATIF), (("fix", "--verify"), ["run 1, as it is"])]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program whose process is there for two looks, and writes nothing down."""

    def relayed(start: Callable[..., subprocess.Popen[bytes]], tick: Callable[[], None], passed: list[int]) -> int:
        tick()
        tick()
        return 0

    monkeypatch.setattr(trial_sandbox, "run_relayed", relayed)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch\n")
    return tmp_path


def said(stream: Any, monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setattr("sys.stderr", stream)
    main(words)
    return str(stream.getvalue())


@pytest.mark.parametrize(("words", "expected"), VERBS, ids=lambda v: v[0])
def test_a_terminal_shows_which_trial_runs(
    place: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], expected: list[str]
) -> None:
    drawn = said(Terminal(), monkeypatch, *words, "train.py").split("\r\x1b[K")[1:]
    assert [line.rpartition(" · ")[0] for line in drawn[::2]] == [f"torchvet: {t} · no step yet" for t in expected]
    assert [rest.split("\n")[0] for rest in drawn[1::2]] == [""] * len(expected), "each line is taken away"


@pytest.mark.parametrize(("words", "expected"), VERBS, ids=lambda v: v[0])
def test_a_pipe_and_quiet_show_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], expected: list[str]
) -> None:
    assert "no step yet" not in said(io.StringIO(), monkeypatch, *words, "train.py")
    assert said(Terminal(), monkeypatch, *words, "--quiet", "train.py") == ""


def test_beside_the_programs_output_a_trial_is_announced_on_a_line_of_its_own(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = said(Terminal(), monkeypatch, "amp", "--trials", "1", "--show-output", "train.py")
    assert [line.partition(" · ")[0] for line in text.splitlines()] == [f"torchvet: {trial}" for trial in AMP]
