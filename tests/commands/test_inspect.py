"""`torchvet inspect`: files told by their content, one report, the exit status of every verb."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

import torchvet
from torchvet.commands import main
from torchvet.recording import RecordingWriter
from torchvet.recording.records.base import Program
from torchvet.recording.records.training import Outcome

DATA = Path(__file__).resolve().parents[1] / "data"
HEALTHY, LARGE = DATA / "magma.pickle", DATA / "silmont.pickle"


def test_a_healthy_snapshot_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(HEALTHY)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("No fault found")
    for expected in (
        "5,163 events",
        "peak",
        "13.9 GB",
        "activations",
        "model.py:39 forward",
        "older than the recording",
    ):
        assert expected in shown
    assert len(shown.splitlines()) < 40 and max(map(len, shown.splitlines())) <= 100


def test_a_finding_is_exit_status_1_and_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(LARGE)]) == 1
    assert "trace_peak_memory.py:8" in capsys.readouterr().out
    assert main(["inspect", "--exit-zero", "-q", str(LARGE)]) == 0
    assert main(["inspect", "--ignore", "MEM207", "-q", str(LARGE)]) == 0
    assert capsys.readouterr().out == ""


def test_the_name_does_not_matter_the_content_does(tmp_path: Path) -> None:
    shutil.copy(HEALTHY, tmp_path / "trace.json")
    assert main(["inspect", "-q", str(tmp_path / "trace.json")]) == 0


def test_several_snapshots_are_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--format", "json", "-o", str(tmp_path / "r.md"), str(HEALTHY), str(LARGE)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["subject"] == {"kind": "snapshot", "paths": [str(HEALTHY), str(LARGE)]}
    assert [f["rank"] for f in report["findings"]] == [1]
    peaks = [s["peak"]["bytes"] for s in report["facts"]["snapshots"]]
    assert peaks == [13_923_997_700, 3_249_143_816]
    assert (tmp_path / "r.md").read_text()


def children() -> set[str]:
    """This process's children: those of other tests are among them."""
    lists = Path("/proc/self/task").glob("*/children")
    return {child for each in lists for child in each.read_text().split()}


@pytest.mark.skipif(sys.platform != "linux", reason="children are told by /proc")
def test_a_bad_file_among_ranks_ends_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is being read ahead is not left behind."""
    bad = tmp_path / "rank1.pickle"
    bad.write_bytes(HEALTHY.read_bytes()[:5000])
    before = children()
    assert main(["inspect", str(HEALTHY), str(bad), str(LARGE)]) == 2
    assert f"{bad}: this pickle ends in the middle" in capsys.readouterr().err
    assert children() <= before


def test_the_library_says_the_same() -> None:
    report = torchvet.inspect(LARGE, select=["MEM2"])
    assert [f.code for f in report.findings] == ["MEM207"] and report.verdict == "findings"
    with pytest.raises(torchvet.BadInput, match="is not known"):
        torchvet.inspect(__file__)


def test_a_recording_is_reported_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = RecordingWriter(tmp_path / "run.vet")
    writer.write(Program(argv=["a.py"], path="a.py", cwd="/", python="3", torch="2", device="cpu", started=0.0, pid=1))
    writer.write(Outcome(how="finished", status=0, ticks=0, seconds=0.1))
    writer.close()
    status = main(["report", str(tmp_path / "run.vet")])
    reported = capsys.readouterr().out
    assert main(["inspect", str(tmp_path / "run.vet")]) == status
    assert capsys.readouterr().out == reported


def test_nothing_recorded_is_no_clean_bill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.pickle"
    empty.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]]}))
    assert main(["inspect", str(empty)]) == 3
    assert "Could not judge" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["text", "zip", "folder", "missing", "empty", "cut", "code"])
def test_what_cannot_be_read_is_one_message_and_status_2(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "given"
    if kind == "zip":
        zipfile.ZipFile(path, "w").writestr("data.pkl", "x")
    elif kind == "folder":
        path.mkdir()
    elif kind != "missing":
        whole = HEALTHY.read_bytes()
        content = {"text": b"hello", "empty": b"", "cut": whole[:1000], "code": pickle.dumps(print)}
        path.write_bytes(content[kind])
    assert main(["inspect", str(path)]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and "Traceback" not in shown.err
    assert shown.err.startswith("torchvet: ") and str(path) in shown.err
