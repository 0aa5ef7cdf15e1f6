"""What is left of a rank that SIGKILL has ended: the step, the phase, and the line at which it was seen in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from handmade import FILE, outcome, program, steps

from torchvet.diagnosis.diagnose import diagnose
from torchvet.recording import RecordingWriter, read
from torchvet.recording.last_seen import LastSeenFile, last_seen
from torchvet.recording.records.base import Place
from torchvet.recording.records.ranks import LastSeen, Member, Standstill
from torchvet.recording.records.training import Outcome
from torchvet.renderers import renderer_for

LOAD = Place(FILE, 40, "load")


def test_the_last_moment_counts_and_a_line_of_the_same_step(tmp_path: Path) -> None:
    record = tmp_path / "rank1.jsonl"
    file = LastSeenFile(record)
    assert last_seen(record) == LastSeen(tick=0, phase="before its backward pass")
    file.moment(16, 0)
    file.line(Standstill(tick=16, seconds=0.0, place=LOAD, call="load"))
    assert last_seen(record) == LastSeen(tick=16, phase="before its backward pass", place=LOAD, call="load")
    file.moment(17, 3)
    assert last_seen(record) == LastSeen(tick=17, phase="in the optimizer's step")
    file.end()
    file.moment(18, 0)
    assert last_seen(record) is None and not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", [b"", b"x", b"1 9\n", b"-1 0\n", b"9" * 2048, b"%20d %10d\n" % (3, 1) + b"\xff" * 99])
def test_a_file_that_no_rank_has_written_says_nothing_or_less(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "rank0.last").write_bytes(text)
    found = last_seen(tmp_path / "rank0.jsonl")
    assert found is None or (found.tick, found.place) == (3, None)


def ranks(folder: Path, how: Any) -> None:
    """Two ranks of which the second has left its last moment behind."""
    for number in (0, 1):
        writer = RecordingWriter(folder, number)
        ended = outcome(17) if number == 0 else Outcome(how=how, status=-9, ticks=16, seconds=1.0)
        for record in (Member(rank=number, world_size=2, host="a"), program(pid=number + 1), *steps(16), ended):
            writer.write(record)
        writer.close()
    file = LastSeenFile(folder / "rank1.jsonl")
    file.moment(17, 0)
    file.line(Standstill(tick=17, seconds=0.0, place=LOAD, call="load"))


def test_the_report_says_where_a_killed_rank_was_last(tmp_path: Path) -> None:
    ranks(tmp_path, "killed")
    report = diagnose(read(tmp_path))
    assert report.facts["outcome"]["last"] == {
        "step": 18, "phase": "before its backward pass", "call": "load",
        "place": {"path": FILE, "line": 40, "function": "load"},
    }  # fmt: skip
    assert report.facts["outcome"]["steps"] == 17 and "last" not in report.facts["ranks"][0]
    first = renderer_for("text").render(report, width=200).splitlines()[0]
    assert "rank 1 was killed by signal 9 after 17 steps: it was last seen at" in first
    assert "40 in load (`load`), before its backward pass in step 18" in first


def test_of_a_rank_that_said_how_it_ended_no_more_is_said(tmp_path: Path) -> None:
    ranks(tmp_path, "exception")
    assert "last" not in diagnose(read(tmp_path)).facts["outcome"]
