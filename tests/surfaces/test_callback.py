"""What the callbacks of frameworks share, without any framework."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from torchvet.surfaces.callback import Training


def trained(training: Training, steps: int, leads: bool = True) -> None:
    training.begin()
    weight = torch.ones(4, requires_grad=True)
    for _ in range(steps):
        weight.sum().backward()
    training.end(leads=leads)


def test_the_rank_that_leads_writes_the_report(tmp_path: Path) -> None:
    file = tmp_path / "report.md"
    training = Training(file, show=False, record=None, memory_limit=None)
    trained(training, 3, leads=False)
    assert training.report is not None and not file.exists()
    trained(training, 3)
    assert file.read_text("utf-8").startswith("## torchvet: ")


def test_a_report_that_cannot_be_written_ends_no_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = Training(tmp_path / "missing" / "report.md", show=False, record=None, memory_limit=None)
    trained(training, 1)
    assert training.report is not None
    assert "the report was not written: " in capsys.readouterr().err


def test_one_that_fails_unnoticed_ends_when_the_next_begins() -> None:
    training = Training(None, show=False, record=None, memory_limit=None)
    training.begin()
    trained(training, 2)
    assert training.report is not None and training.report.facts["steps"] == 2
    assert training.end() is None, "none is running"


def test_a_page_has_the_charts_of_what_was_watched(tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    from torchvet.renderers.html import page

    file = tmp_path / "report.html"
    training = Training(file, show=False, record=None, memory_limit=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "plotly", lambda: "/* plotly */")
        trained(training, 12)
    text = file.read_text("utf-8")
    assert all(f'<section id="{name}"' in text for name in ("memory", "time")), "as `run -o report.html` draws"
    assert "only the report was at hand" not in text
