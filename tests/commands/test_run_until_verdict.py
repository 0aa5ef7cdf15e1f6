"""`run --until-verdict`: when a verdict stands, and a program that would never end is stopped by it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchvet.commands import main
from torchvet.finding import Finding, Holder, Location, Measured, Remedy, Report
from torchvet.probes.session import launch
from torchvet.probes.session.session import Options
from torchvet.recording import RecordingWriter
from torchvet.workflows.until_verdict import UntilVerdict, stands

ENDLESS = """
import time
import torch

torch.manual_seed(0)
model = torch.nn.Linear(64, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []
while True:
    optimizer.zero_grad()
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    kept.append(model(torch.randn(32, 64)).relu().mean())
    time.sleep(0.002)
"""


def leak(rate: float = 1e6, **other: Any) -> Finding:
    given: dict[str, Any] = {"code": "MEM101", "severity": "error", "evidence": "observed", "line": 3} | other
    return Finding(
        code=given["code"], name="graph-retained", severity=given["severity"], evidence=given["evidence"], message="m",
        cause="c", remedy=Remedy(summary="r"), location=Location(path="a.py", line=given["line"]),
        holder=Holder(name="kept", kind="global"), measured=Measured(bytes_per_step=rate),
    )  # fmt: skip


def report(steps: int, *findings: Finding, earned: bool = True) -> Report:
    facts = {"steps": steps, "verdict": {"earned": earned}, "outcome": {"how": "steps-reached"}}
    return Report(subject={}, verdict="findings" if findings else "clean", findings=list(findings), facts=facts)


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        (report(100, leak()), report(150, leak(1.05e6)), True),
        (report(100, leak()), report(150, leak(1.2e6)), False),
        (report(100, leak()), report(150, leak(), leak(code="MEM104")), False),
        (report(100, leak(line=2)), report(150, leak()), False),
        (report(100, leak(severity="warning")), report(150, leak()), False),
        (report(100, leak(evidence="suspected")), report(150, leak(evidence="suspected")), False),
        (report(100, leak(code="MEM118")), report(150, leak(code="MEM118")), False),
        (report(20, leak()), report(150, leak()), False),
        (report(100), report(150), True),
        (report(100, leak(severity="info")), report(150), True),
        (report(100, earned=False), report(150), False),
        (report(100), report(150, earned=False), False),
        (report(100, leak()), report(150), False),
    ],
)
def test_when_a_verdict_stands(earlier: Report, later: Report, expected: bool) -> None:
    assert stands(earlier, later) is expected


def test_the_program_is_told_once_and_the_report_says_so(tmp_path: Path) -> None:
    until = UntilVerdict(tmp_path, lambda recording: report(0))
    until.judge(report(100, leak()))
    until.judge(report(120, leak()))  # too soon after the first
    assert not until.file.exists() and until.agreed is None
    until.judge(report(150, leak()))
    assert until.file.exists() and until.agreed == (100, 150)
    noted = until.noted(report(157, leak()))
    assert [n.check for n in noted.not_checked] == ["what the program does after step 157"]
    assert not until.file.exists()


def test_a_program_that_ended_by_itself_is_not_said_to_be_stopped(tmp_path: Path) -> None:
    until = UntilVerdict(tmp_path, lambda recording: report(0))
    until.judge(report(100))
    until.judge(report(200))
    ended = report(210)
    ended.facts["outcome"]["how"] = "finished"
    assert until.noted(ended) == ended


def test_several_ranks_are_never_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchvet.workflows.until_verdict.FIRST", 0.0)
    monkeypatch.setattr("torchvet.workflows.until_verdict.EVERY", 0.0)
    monkeypatch.setattr("torchvet.workflows.until_verdict.SHARE", 1e9)
    steps = iter((100, 200, 400, 800))
    RecordingWriter(tmp_path, 0).close()
    until = UntilVerdict(tmp_path, lambda recording: report(next(steps)))
    until.tick()
    RecordingWriter(tmp_path, 1).close()
    until.tick()
    assert until.agreed is None
    (tmp_path / "rank1.jsonl").unlink()
    until.tick()
    assert until.agreed == (100, 200)


def test_processes_that_the_program_starts_are_observed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    led: list[dict[str, Any]] = []
    monkeypatch.setattr(launch.following, "lead", lambda options, *rest: led.append(options))
    options = Options(directory="d", path="a.py", argv=["a.py"], user_root=".", stop_file="d/stop")
    launch._follow({"directory": "d", "rank": 0, "probes": {"stop_file": "d/stop"}}, options, None)  # type: ignore[arg-type]
    assert [one["stop_file"] for one in led] == ["d/stop"]


@pytest.mark.parametrize("more", [["--nproc", "2"], ["--simulate-gpu", "l4", "--dry"]])
def test_what_it_cannot_be_combined_with(tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.py").write_text("pass")
    assert main(["run", "--until-verdict", *more, str(tmp_path / "a.py")]) == 2
    assert "--until-verdict" in capsys.readouterr().err


def test_a_program_that_never_ends_is_stopped_by_its_verdict(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    words = ["run", "--until-verdict", "--quiet", "-o", "report.json", "endless.py"]
    ran = subprocess.run(
        [sys.executable, "-m", "torchvet", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 1, ran.stderr
    found = json.loads((tmp_path / "report.json").read_text("utf-8"))
    (finding,) = [f for f in found["findings"] if f["severity"] == "error"]
    assert (finding["code"], finding["evidence"], finding["holder"]["name"]) == ("MEM101", "observed", "kept")
    assert found["facts"]["outcome"]["how"] == "steps-reached"
    assert f"after step {found['facts']['steps']:,}" in found["not_checked"][-1]["check"]
