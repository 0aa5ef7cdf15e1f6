"""A torch that cannot carry a simulated GPU is told before anything runs, or instead of the program."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from torchvet.commands import main
from torchvet.errors import BadInput
from torchvet.probes.session.session import Options, Session
from torchvet.supervisor import preflight


@pytest.mark.parametrize("found", ["2.6.0", "2.12.1+cu126", "1.13.1", "2.12.0a0+git0"])
def test_an_old_torch_is_refused(
    found: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preflight, "version", lambda _: found)
    with pytest.raises(BadInput, match=r"2\.13 or newer"):
        preflight.check_simulation()
    program = tmp_path / "program.py"
    program.write_text("raise AssertionError('it ran')", encoding="utf-8")
    assert main(["run", "--simulate-gpu", "l4", str(program)]) == 2
    assert found in capsys.readouterr().err


@pytest.mark.parametrize("found", ["2.13.0", "2.13.0+cu130", "2.14.0a0+git5", "3.0.0"])
def test_a_torch_of_now_is_taken(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "version", lambda _: found)
    preflight.check_simulation()


def test_a_torch_without_metadata_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: str) -> Any:
        raise PackageNotFoundError

    monkeypatch.setattr(preflight, "version", none)
    preflight.check_simulation()


def test_where_the_gpu_cannot_be_made_the_program_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torchvet.simulate.start", None)
    options = Options(directory=str(tmp_path), path="program.py", argv=[], user_root=".", simulated_gpu="l4")
    with pytest.raises(SystemExit) as ended:
        Session(options, None)._torch_is_here(sys)  # type: ignore[arg-type]
    assert ended.value.code == 2
    assert "The program was not run" in capsys.readouterr().err


def test_a_launcher_is_started_around_a_simulation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "train.py"
    program.write_text("print(1)\n")
    assert main(["run", "--nproc", "2", "--simulate-gpu", "T4", str(program)]) == 2
    assert "torchrun --nproc-per-node 2 -m torchvet run --simulate-gpu T4" in capsys.readouterr().err
