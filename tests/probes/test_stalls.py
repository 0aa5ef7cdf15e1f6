"""A rank whose interpreter is held up by a call under its lock, in the program or after its end, as torch's destructors
may: the interpreter writes down where, and the report says so."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from handmade import outcome, program, steps

from torchvet.diagnosis.diagnose import diagnose
from torchvet.probes import following
from torchvet.recording import RecordingWriter, read
from torchvet.recording.faults import stuck
from torchvet.recording.records.ranks import Member
from torchvet.renderers import renderer_for

SOURCE = str(Path(following.__file__).parents[3])
HEAD = """
import ctypes, faulthandler, sys
from pathlib import Path
from torchvet.probes.session import fault_log

fault_log._STALLED = fault_log._LATE = 0.3
hold = ctypes.PyDLL(None).usleep
log = fault_log.FaultLog()
log.begin(Path("rank0.jsonl"))
"""


def fault(folder: Path, text: str, world: str = "2") -> str | None:
    """What is left in the file after a program without torch."""
    (folder / "main.py").write_text(HEAD + textwrap.dedent(text))
    known = {**os.environ, "PYTHONPATH": SOURCE, "WORLD_SIZE": world}
    subprocess.run([sys.executable, "main.py"], cwd=folder, env=known, check=True, timeout=60)
    file = folder / "rank0.fault"
    return file.read_text() if file.exists() else None


HELD = """
    def drop():
        hold(1_500_000)

    log.alive()
    drop()
"""


def test_a_call_that_keeps_the_lock_is_written_down(tmp_path: Path) -> None:
    said = fault(tmp_path, HELD)
    assert said is not None and said.startswith("Timeout (0:00:00.3") and "in drop" in said


def test_what_went_on_is_forgotten(tmp_path: Path) -> None:
    assert fault(tmp_path, HELD + "    log.alive()\n    log.end()\n") is None


def test_a_destructor_that_holds_up_the_end_is_written_down(tmp_path: Path) -> None:
    text = """
        class Model:
            def __del__(self, hold=hold):
                hold(1_500_000)

        model = Model()
        log.end()
        log.last()
    """
    said = fault(tmp_path, text)
    assert said is not None and said.startswith("Timeout") and "in __del__" in said
    found = stuck(tmp_path / "rank0.fault", program(path="main.py", cwd=str(tmp_path)))
    assert found is not None and found.place is not None and found.place.function == "__del__"


def test_a_program_that_has_tracebacks_written_later_keeps_its_own(tmp_path: Path) -> None:
    text = """
        faulthandler.dump_traceback_later(0.3, file=open("own.txt", "w"))
        log.alive()
        hold(1_000_000)
        log.end()
        log.last()
    """
    assert fault(tmp_path, text) is None
    assert "main.py" in (tmp_path / "own.txt").read_text()


def test_a_process_on_its_own_is_not_watched(tmp_path: Path) -> None:
    assert fault(tmp_path, HELD, world="1") == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_ends(tmp_path: Path) -> None:
    text = """
        import os

        log.alive()
        fault_log._STALLED = 0.3
        child = os.fork()
        if child == 0:
            sys.exit(7)
        log.alive()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        log.alive()
        hold(1_500_000)
    """
    said = fault(tmp_path, text.replace("log.alive()", "fault_log._STALLED = 30; log.alive()", 1))
    assert said is not None and said.startswith("Timeout"), "the parent is watched again"


@pytest.mark.parametrize("text", ["", "Fatal Python error: Aborted\n", "Timeout (soon)!\n"])
def test_what_is_no_timeout_is_no_process_that_stays(tmp_path: Path, text: str) -> None:
    (tmp_path / "rank0.fault").write_text(text)
    assert stuck(tmp_path / "rank0.fault", program()) is None


@pytest.mark.parametrize(
    ("stack", "where"),
    [
        ("  <no Python frame>\n", "in destructors, with no Python left to run"),
        ('  File "/home/me/train.py", line 40 in main\n', "train.py:40"),
    ],
)
def test_the_report_says_where_a_process_stood_that_did_not_end(tmp_path: Path, stack: str, where: str) -> None:
    for number in (0, 1):
        writer = RecordingWriter(tmp_path, number)
        for record in (Member(rank=number, world_size=2, host="a"), program(), *steps(20), outcome(20)):
            writer.write(record)
        writer.close()
    (tmp_path / "rank1.fault").write_text(f"Timeout (0:00:10)!\nThread 0x1 (most recent call first):\n{stack}")
    report = diagnose(read(tmp_path))
    assert [("stuck" in row, row["how"]) for row in report.facts["ranks"]] == [(False, "finished"), (True, "finished")]
    page = renderer_for("text").render(report, width=160)
    assert "the program of rank 1 had ended; 10.0 s later its process had not" in page and where in page
