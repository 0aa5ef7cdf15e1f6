"""`inspect --export`: names pick forms, refusals come before reading, files appear whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from exporting_by_hand import DATA, REAL

from torchvet.commands import main
from torchvet.exporting.targets import Target
from torchvet.recording import RecordingWriter
from torchvet.recording.records.base import Program

SNAPSHOT = REAL[1]
TRACE = DATA / "traces" / "cpu_input_bound.json.gz"
NAMES = ["a.speedscope.json", "a.perfetto.json", "a.csv", "a.JSONL", "a.txt"]


def inspect(*words: object) -> int:
    return main(["inspect", "-q", "--exit-zero", *map(str, words)])


@pytest.mark.parametrize("given", [SNAPSHOT, TRACE], ids=["snapshot", "trace"])
def test_all_forms_at_once(given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    targets = [tmp_path / name for name in NAMES]
    assert inspect(given, *(f"--export={t}" for t in targets)) == 0
    assert sorted(tmp_path.iterdir()) == sorted(targets)
    json.loads(targets[0].read_text("utf-8")), json.loads(targets[1].read_text("utf-8"))
    assert len(targets[2].read_text("utf-8").splitlines()) >= 2
    assert all(json.loads(line)["table"] for line in targets[3].read_text("utf-8").splitlines())
    assert capsys.readouterr() == ("", "")


def test_the_report_and_the_exit_status_stay_as_they_were(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, without = main(["inspect", str(SNAPSHOT)]), capsys.readouterr().out
    assert main(["inspect", str(SNAPSHOT), "--export", str(tmp_path / "a.perfetto.json")]) == status == 1
    assert capsys.readouterr().out == without


def test_findings_of_a_trace_are_in_its_timeline(tmp_path: Path) -> None:
    inspect(TRACE, "--export", tmp_path / "a.perfetto.json")
    names = [e["name"] for e in json.loads((tmp_path / "a.perfetto.json").read_text())["traceEvents"]]
    assert any(name.startswith("OPS301 ") for name in names)
    inspect(TRACE, "--export", tmp_path / "a.perfetto.json", "--ignore", "OPS")
    assert "OPS301" not in (tmp_path / "a.perfetto.json").read_text()


def test_a_folder_of_ranks_has_their_numbers(tmp_path: Path) -> None:
    for rank in (0, 1):
        shutil.copy(DATA / "traces" / f"gloo_rank{rank}.json.gz", tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    assert inspect(tmp_path, "--export", out / "a.jsonl") == 0
    assert {json.loads(line)["rank"] for line in (out / "a.jsonl").read_text().splitlines()} == {0, 1}


@pytest.mark.parametrize("name", ["a.json", "a.parquet", "csv", ".csv", "a.csv.gz", "a.speedscope"])
def test_other_names_are_refused_with_those_that_are_known(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspect(SNAPSHOT, "--export", tmp_path / name) == 2
    said = capsys.readouterr().err
    assert all(known in said for known in ("*.speedscope.json", "*.perfetto.json", "*.csv", "*.jsonl"))
    assert "Traceback" not in said and list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchvet.inspecting.inspect_paths", lambda *_: pytest.fail("it was read"))
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "pipe.csv").symlink_to("/dev/null")
    good = tmp_path / "good.csv"
    for bad, reason in (
        (tmp_path / "none" / "a.csv", "does not exist"), (tmp_path / "folder.csv", "is a folder"),
        (tmp_path / "pipe.csv", "no plain file"), (good, "given twice"), (tmp_path / ("x" * 300 + ".csv"), "cannot be"),
    ):  # fmt: skip
        assert inspect(SNAPSHOT, "--export", good, "--export", bad) == 2
        shown = capsys.readouterr()
        assert reason in shown.err and shown.err.startswith("torchvet: ") and shown.out == ""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.csv", "pipe.csv"]


def test_the_report_and_an_export_cannot_be_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = tmp_path / "a.perfetto.json"
    assert inspect(SNAPSHOT, "-o", both, "--export", tmp_path / "." / "a.perfetto.json") == 2
    assert "given twice" in capsys.readouterr().err and list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o500)
    assert inspect(SNAPSHOT, "--export", tmp_path / "a.csv") == 2
    tmp_path.chmod(0o700)
    assert "could not be written: Permission denied" in capsys.readouterr().err


def test_a_file_that_is_read_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = tmp_path / "a.perfetto.json"
    shutil.copy(TRACE, given)
    for words in ([given], [tmp_path]):
        assert inspect(*words, "--export", given) == 2
        assert "one of the files to be read" in capsys.readouterr().err
    assert given.read_bytes() == TRACE.read_bytes() and len(list(tmp_path.iterdir())) == 1


def test_a_recording_is_not_overwritten_by_its_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = RecordingWriter(tmp_path / "run.vet")
    writer.write(Program(argv=["a.py"], path="a.py", cwd="/", python="3", torch="2", device="cpu", started=0.0, pid=1))
    writer.close()
    (tmp_path / "run.vet" / "a.txt").write_text("kept")
    assert inspect(tmp_path / "run.vet", "--export", tmp_path / "run.vet" / "a.txt") == 2
    assert "one of the files to be read" in capsys.readouterr().err
    assert (tmp_path / "run.vet" / "a.txt").read_text() == "kept"


def test_a_file_that_cannot_be_read_leaves_the_old_export(tmp_path: Path) -> None:
    target, bad = tmp_path / "a.csv", tmp_path / "bad.pickle"
    target.write_text("old")
    bad.write_bytes(SNAPSHOT.read_bytes()[:5000])
    assert inspect(SNAPSHOT, bad, "--export", target) == 2
    assert target.read_text() == "old" and sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "bad.pickle"]


def test_links_and_permissions_are_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    assert inspect(SNAPSHOT, "--export", link) == 0
    assert link.is_symlink() and real.read_text().startswith("rank,")
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_new_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    assert inspect(SNAPSHOT, "--export", tmp_path / "a.csv") == 0
    assert (tmp_path / "a.csv").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no device that is always full")
@pytest.mark.parametrize("snapshot", REAL, ids=["while it is written", "when it is closed"])
def test_a_full_disk_is_one_message_and_nothing_is_left(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: Target, path: Path) -> None:
        made(self, path)
        self.stream.close()
        self.stream = open("/dev/full", "w")  # noqa: SIM115

    made = Target.__init__
    monkeypatch.setattr(Target, "__init__", full)
    assert inspect(snapshot, "--export", tmp_path / "a.csv") == 2
    said = capsys.readouterr().err
    assert said == f"torchvet: {tmp_path / 'a.csv'}: the export could not be written: No space left on device\n"
    assert list(tmp_path.iterdir()) == []
