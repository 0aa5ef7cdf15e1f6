"""What OPS304 says of growing files that are written whole again, and when it says nothing of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place, Program, Source
from torchvet.recording.records.reading import WrittenAgain
from torchvet.recording.records.timing import LineTime, LineTimes

PATH = "/home/user/survey.py"
TEXT = """def survey(model, loader, maps, path):
    for x in loader:
        maps.append(model(x))
        np.savetxt(path, maps)
        with open(path, "w") as file:
            text = render(maps)
            file.write(text)
        other = open(path, "w")
        json.dump(maps, other)
        other.close()
def train(model, loader):
    for x in loader:
        model(x).sum().backward()
"""
AT = Place(PATH, 4, "survey")
WRITTEN = WrittenAgain(
    0, AT, [Place(PATH, 20, "main")], "a.txt", files=2, writes=80, grew=78, bytes=4000, last_bytes=400
)


def found(record: WrittenAgain = WRITTEN, seconds: float = 3.0, **more: Any) -> list[Finding]:
    place = Place(PATH, more.pop("line", record.place.line), "survey")
    lines = [
        LineTime(place=place, seconds=seconds, looks=80, steps=4, calls="numpy.savetxt"),
        LineTime(place=Place(PATH, 13, "train"), seconds=10.0 - seconds, looks=80, steps=80, phase="backward"),
    ]
    times = LineTimes(seconds=10.0, steps=100, looks=400, interval=0.01, own=0.0, lines=lines)
    ran = Program(argv=[], path=PATH, cwd="", python="3.11", torch="2.13.0", device="cpu", started=0.0, pid=1)
    rank = RankRecording(0, [ran, Source(path=PATH, text=TEXT), times, replace(record, **more)])
    every = diagnose(Recording([rank]), select=["OPS304"]).findings
    return [f for f in every if "written whole" in f.message]


def test_versions_that_nobody_read_are_told_with_their_time() -> None:
    (one,) = found()
    assert one.severity == "warning" and one.location is not None and one.location.line == 4
    # Of ten bytes that were written one was left.
    assert one.message.startswith("2 growing files are written whole 40 times each, for what is new: 27.0 ms of a step")
    assert "400 bytes (10 %) of them were left" in one.cause and "read none of the versions" in one.cause
    assert [r.line for r in one.related] == [20]
    (one,) = found(files=1, grew=79)
    assert one.message.startswith("a growing file is written whole 80 times, for what is new")


@pytest.mark.parametrize(("opened", "takes"), [(5, 6), (5, 7), (8, 9), (8, 10)])
def test_what_is_done_with_the_open_file_counts(opened: int, takes: int) -> None:
    (one,) = found(replace(WRITTEN, place=Place(PATH, opened, "survey")), line=takes)
    assert one.location is not None and one.location.line == takes


def test_little_time_is_a_note_or_silent() -> None:
    assert [f.severity for f in found(seconds=1.2)] == ["info"]
    assert not found(seconds=0.3)


@pytest.mark.parametrize(
    "changed",
    [
        {"grew": 10},  # a checkpoint of one size
        {"files": 40},  # each file twice
        {"read": 60},  # a journal that is read back
        {"last_bytes": 0},  # nothing is left
        {"last_bytes": 4000},
        {"line": 3},  # the time is another line's
    ],
)
def test_files_that_do_not_grow_or_are_read(changed: dict[str, Any]) -> None:
    assert not found(**changed)
