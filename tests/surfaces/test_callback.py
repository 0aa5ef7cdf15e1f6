"""What the callbacks of frameworks share, without any framework."""

from __future__ import annotations

import json
import multiprocessing
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from torchvet.api.all_ranks import AllRanks
from torchvet.api.ending import TrainingUnfinished, why
from torchvet.recording import Recording
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


def test_a_rank_that_the_first_reports_on_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    training = Training(None, show=True, record=None, memory_limit=None)
    trained(training, 1)
    assert "What was seen" in capsys.readouterr().err

    def join(self: AllRanks, recording: Recording, writer: object, failed: bool) -> Recording:
        self.joined = True
        return recording

    with monkeypatch.context() as patch:
        patch.setattr(AllRanks, "join", join)
        trained(training, 1)
    assert training.report is not None and capsys.readouterr().err == ""
    trained(training, 1)
    assert "What was seen" in capsys.readouterr().err, "the next one has no others"


def test_one_that_fails_unnoticed_ends_when_the_next_begins() -> None:
    training = Training(None, show=False, record=None, memory_limit=None)
    reports = []
    ended = training.end

    def end(*given: Any, **named: Any) -> Any:
        reports.append(ended(*given, **named))
        return reports[-1]

    training.end = end  # type: ignore[method-assign]
    training.begin()
    trained(training, 2)
    failed, finished = (report.facts["outcome"] for report in reports if report is not None)
    assert (failed["how"], finished["how"]) == ("exception", "finished")
    assert "did not come to its end" in failed["error"]
    assert training.report is not None and training.report.facts["steps"] == 2
    assert training.end() is None, "none is running"


def fails(kind: type[BaseException], file: str) -> None:
    """In a process of `multiprocessing`."""
    training = Training(file, show=False, record=None, memory_limit=None)
    training.begin()
    torch.ones(1, requires_grad=True).sum().backward()
    raise kind("the batch is empty")


def test_one_that_fails_in_a_process_of_multiprocessing_is_reported(tmp_path: Path) -> None:
    """It runs no exit handlers, and has dropped the error."""
    file = tmp_path / "report.json"
    process = multiprocessing.get_context("fork").Process(target=fails, args=(ValueError, str(file)))
    process.start()
    process.join(120)
    assert process.exitcode == 1
    outcome = json.loads(file.read_bytes())["facts"]["outcome"]
    assert (outcome["how"], outcome["error"]) == ("exception", "ValueError: the batch is empty")
    assert outcome["place"]["function"] == "fails"


def test_the_error_of_a_rank_is_the_one_behind_torchs_exit(tmp_path: Path) -> None:
    from torch.multiprocessing.spawn import _wrap

    try:
        _wrap(fails_in_rank, 0, (), str(tmp_path / "error.pickle"))
    except SystemExit:
        error = why()
        assert isinstance(error, ValueError) and str(error) == "rank 0"
    try:
        raise SystemExit(3)
    except SystemExit:
        assert isinstance(why(), SystemExit)


def fails_in_rank(rank: int) -> None:
    raise ValueError(f"rank {rank}")


def test_nothing_is_known_of_an_error_that_somebody_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "last_value", raising=False)
    assert isinstance(why(), TrainingUnfinished)


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
