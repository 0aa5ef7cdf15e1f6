"""Ways in which torchvet may be installed that `run` cannot work with: said, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchvet.commands import main
from torchvet.supervisor import supervise


def test_an_install_without_source_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(supervise, "BOTTOM", str(tmp_path / "torchvet.zip" / "_importlib_bootstrap.py"))
    program = tmp_path / "train.py"
    program.write_text("print('never runs')\n")
    assert main(["run", str(program)]) == 2
    out, err = capfd.readouterr()
    assert "not as a zip" in err and "Traceback" not in err and "never runs" not in out
