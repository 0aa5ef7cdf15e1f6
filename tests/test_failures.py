"""A request for device memory that failed in a run, explained from the snapshot that was left."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from handmade import program, recording, steps

from torchvet.diagnosis.diagnose import diagnose
from torchvet.recording.records.memory import MemoryHistory
from torchvet.recording.records.training import MemoryFailure, Outcome

sys.path.insert(0, str(Path(__file__).parent / "snapshots"))
from making_snapshots import MB, OutOfMemory, Recorder, Training, fragmented


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The snapshot of a training that leaks until 400 MB are full."""
    training = Training(Recorder(400 * MB))
    with pytest.raises(OutOfMemory):
        while True:
            training.step(leak=6 * MB)
    return str(training.recorder.write(tmp_path_factory.mktemp("left") / "train.oom.pickle"))


def failed(snapshot: str | None, number: int = 1) -> MemoryFailure:
    """The record of a failure."""
    return MemoryFailure(tick=9, device=0, asked=MB, total=400 * MB, free=0, number=number, snapshot=snapshot)


def ended(how: str) -> Outcome:
    """How the program ended."""
    return Outcome(how=how, status=how != "finished", ticks=30, seconds=3.0)  # type: ignore[arg-type]


def test_the_run_that_died_of_it_says_what_was_alive(left: str) -> None:
    report = diagnose(recording(program(device="cuda"), steps(30), failed(left), ended("out-of-memory")))
    (found,) = [f for f in report.findings if f.code == "MEM304"]
    assert found.severity == "error" and "had leaked" in found.message
    assert found.related[0].role == "left beside" and left in found.related[0].message
    assert not [f for f in report.findings if f.code == "MEM102"], "what leaks is the run's own finding"


def test_an_error_that_was_caught_is_no_fault(left: str) -> None:
    report = diagnose(recording(program(device="cuda"), steps(30), failed(left), failed(None, 2), ended("finished")))
    assert {f.severity for f in report.findings if f.code.startswith("MEM30")} == {"info"}
    (found,) = [f for f in report.findings if f.code == "MEM304"]
    assert found.message.endswith("the program caught the error and went on")


def test_a_snapshot_that_is_gone_is_said(tmp_path: Path) -> None:
    report = diagnose(recording(program(device="cuda"), steps(30), failed(str(tmp_path / "gone")), ended("finished")))
    assert not report.findings
    assert any(gap.check == "what was alive when memory ran out" for gap in report.not_checked)


def test_rules_that_are_ignored_are_not_asked(left: str) -> None:
    run = recording(program(device="cuda"), steps(30), failed(left), ended("out-of-memory"))
    assert not [f for f in diagnose(run, ignore=["MEM3"]).findings if f.code.startswith("MEM3")]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The history of a training whose segments are pinned, as a run on a simulated GPU leaves it."""
    training = Training(Recorder())
    for _ in range(6):
        training.step()
    fragmented(training.recorder, 60)
    return str(training.recorder.write(tmp_path_factory.mktemp("history") / "memory.pickle"))


def test_the_history_of_a_run_is_judged(history: str) -> None:
    run = recording(program(device="cuda"), steps(30), MemoryHistory(snapshot=history), ended("finished"))
    (found,) = [f for f in diagnose(run).findings if f.code == "MEM301"]
    assert found.location is not None and found.measured.bytes
    assert not [f for f in diagnose(run, ignore=["MEM301"]).findings if f.code == "MEM301"]


def test_of_a_failure_its_own_snapshot_speaks(history: str, left: str) -> None:
    run = recording(
        program(device="cuda"), steps(30), failed(left), MemoryHistory(snapshot=history), ended("finished")
    )  # fmt: skip
    assert "MEM301" not in {f.code for f in diagnose(run).findings}


def test_a_kept_recording_is_read_no_further_than_its_folder(left: str, tmp_path: Path) -> None:
    """It may be a stranger's, and name any file of the reader's."""
    run = recording(program(device="cuda"), steps(30), failed(left), MemoryHistory(snapshot=left), ended("finished"))
    run.path = tmp_path
    assert not diagnose(run).findings
    assert sum("No such file" in gap.reason for gap in diagnose(run).not_checked) == 2
    (tmp_path / Path(left).name).symlink_to(left)
    assert not diagnose(run).findings
    assert sum("leads out of the recording" in gap.reason for gap in diagnose(run).not_checked) == 2
    (tmp_path / Path(left).name).unlink()
    (tmp_path / Path(left).name).write_bytes(Path(left).read_bytes())
    assert "MEM304" in {f.code for f in diagnose(run).findings}


def test_a_recording_that_was_moved_has_its_history_with_it(history: str) -> None:
    run = recording(program(device="cuda"), steps(30), MemoryHistory(snapshot="/gone/memory.pickle"), ended("finished"))
    assert any("MEM301" in gap.check for gap in diagnose(run).not_checked)
    run.path = Path(history).parent
    assert "MEM301" in {f.code for f in diagnose(run).findings}
