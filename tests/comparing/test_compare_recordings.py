"""Two runs side by side: the peak, what grows and where the time goes; the verb and its gate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from handmade import FILE, census, holding, outcome, program, recording, site, survivors, window

from torchvet.commands.compare import command, parse_share
from torchvet.comparing import compare
from torchvet.comparing.recordings import side_of_recording
from torchvet.comparing.report import report_on
from torchvet.diagnosis.diagnose import diagnose
from torchvet.recording import Recording, RecordingWriter
from torchvet.recording.records.base import Record, Source, Step
from torchvet.renderers import renderer_for

TEXT = "import torch\n\n\n\n\n\n    y = model(x)\n"


def run(rate: int = 0, peak: int = 5000, line: int = 7, cwd: str = "/work", seconds: float = 0.1) -> Recording:
    """Forty steps; a name that keeps `rate` bytes of each."""
    first = msgspec.structs.replace(window(1, 2, 3, peak), categories={"activations": peak}, sites=[site(line=line)])
    grown = [census(t, holding("losses", direct=rate * t, sites=[site()])) for t in (5, 9, 14, 21, 32)] if rate else []
    lived = [survivors(n, 21, 2 * rate) for n in (1, 2)] if rate else []
    timed: list[Record] = [
        Step(n=n, kind="training", t=n * seconds, phases={"backward": seconds / 2, "other": seconds / 2})
        for n in range(1, 41)
    ]
    text = "\n" * (line - 7) + TEXT
    return recording(program(cwd=cwd), timed, first, *grown, *lived, Source(path=FILE, text=text), outcome(40))


def compared(before: Recording, after: Recording, gate: float | None = None) -> dict[str, Any]:
    sides = (side_of_recording(one, diagnose(one).findings) for one in (before, after))
    report = report_on(compare(*sides), gate)
    return {**report.facts["comparison"], "text": renderer_for("text").render(report), "verdict": report.verdict}


def test_a_run_is_the_same_as_itself() -> None:
    found = compared(run(1000), run(1000), 0.0)
    assert found["same"] and found["verdict"] == "clean" and "No difference" in found["text"]


def test_growth_is_told_by_name_and_fails_the_gate() -> None:
    found = compared(run(), run(1000), 0.01)
    growth = next(d for d in found["differences"] if d["title"] == "growth by name")
    assert [(r["name"], r["before"], r["after"]) for r in growth["rows"]] == [("losses", 0, 1000)]
    assert growth["growth"] is None  # of nothing there is no share, and JSON has no infinity
    assert found["verdict"] == "findings" and found["over"] == ["growth by name"]
    assert "Grew by more than the 1 % that is allowed: growth by name" in found["text"] and "+1.0 kB" in found["text"]


def test_a_finding_that_is_gone_is_told_by_its_code_and_holder() -> None:
    found = compared(run(100_000), run())
    rows = next(d for d in found["differences"] if d["title"] == "findings")["rows"]
    assert [(r["name"], r["before"], r["after"]) for r in rows] == [("MEM102 losses", 1, 0)]
    assert found["text"].startswith("findings: 1 -> 0 (-100 %)") and "\nFindings\n" in found["text"]


def test_a_peak_within_the_gate_passes() -> None:
    assert compared(run(peak=10_000), run(peak=10_050), 0.01)["verdict"] == "clean"
    assert compared(run(peak=10_000), run(peak=10_200), 0.01)["verdict"] == "findings"


def test_time_is_told_and_gates_nothing() -> None:
    found = compared(run(), run(seconds=0.3), 0.01)
    assert found["verdict"] == "clean" and "time: 100 ms -> 300 ms (+200 %)" in found["text"]


def test_a_line_is_the_same_wherever_it_moved_to() -> None:
    found = compared(run(line=7), run(line=12, cwd="/elsewhere"))
    assert not next(d for d in found["differences"] if d["title"].startswith("peak by line"))["rows"]


def test_a_recording_without_steps_has_little_to_compare() -> None:
    empty = recording(program(), outcome(0))
    assert compared(empty, empty)["same"]
    assert not compared(empty, run())["same"]


def kept(folder: Path, found: Recording) -> str:
    writer = RecordingWriter(folder, 0)
    for line in found.ranks[0].lines:
        writer.write(line)
    writer.close()
    return str(folder)


def test_the_verb_gates(tmp_path: Path) -> None:
    before, after = kept(tmp_path / "a.vet", run()), kept(tmp_path / "b.vet", run(1000))
    runner = CliRunner()
    written = tmp_path / "c.json"
    result = runner.invoke(
        command, [before, after, "--fail-on-growth", "1%", "-o", str(written)], standalone_mode=False
    )
    assert result.return_value == 1 and "Grew" in result.output
    assert json.loads(written.read_text())["facts"]["comparison"]["over"] == ["growth by name"]
    assert runner.invoke(command, [before, after], standalone_mode=False).return_value == 0
    assert runner.invoke(command, [before, before, "--fail-on-growth", "0"], standalone_mode=False).return_value == 0


def test_shares() -> None:
    assert [parse_share(text) for text in ("1%", " 0.5 % ", "0.01", "2")] == [0.01, 0.005, 0.01, 2.0]
    for text in ("", "-1%", "one", "1%%"):
        with pytest.raises(ValueError, match="is not a share"):
            parse_share(text)
