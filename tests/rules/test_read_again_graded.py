"""What OPS301 says of members of files that are read again, and when it says nothing of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place, Program, Source
from torchvet.recording.records.reading import ReadAgain
from torchvet.recording.records.timing import LineTime, LineTimes, WorkerTimes

PATH = "/home/user/train.py"
TEXT = """import numpy as np
class Songs:
    def __getitem__(self, at):
        tune = self.archive["tune"][at]
        return tune
def train(model, optimizer, loader):
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
        x = archive["tune"][0]
def validate(model, loader):
    for x in loader:
        model(x)
"""
LOOP, ITEM = Place(PATH, 7, "train"), Place(PATH, 4, "Songs.__getitem__")
READ = ReadAgain(0, ITEM, [LOOP], "npz", "tune", reads=900, again=890, members=10, bytes=4000, seconds=2.0, steps=100)


def spent(seconds: float, *stack: Place, **more: Any) -> LineTime:
    return LineTime(place=stack[0], seconds=seconds, looks=80, steps=80, callers=list(stack[1:]), **more)


BACKWARD = spent(2.0, Place(PATH, 8, "train"), phase="backward")
ITEMS = spent(2.5, ITEM, LOOP, phase="data", stage="item")
OTHER = spent(0.5, Place(PATH, 5, "Songs.__getitem__"), LOOP, phase="data", stage="item")


def found(*more: Any, lines: tuple[LineTime, ...] = (ITEMS, OTHER), code: str = "OPS301") -> list[Finding]:
    every = [BACKWARD, *lines]
    whole = sum(line.seconds for line in every)
    times = LineTimes(seconds=whole, steps=100, looks=400, interval=0.01, own=0.0, lines=every)
    ran = Program(argv=[], path=PATH, cwd="", python="3.11", torch="2.13.0", device="cpu", started=0.0, pid=1)
    rank = RankRecording(0, [ran, Source(path=PATH, text=TEXT), times, *more])
    return [f for f in diagnose(Recording([rank]), select=[code]).findings if f.code == code]


def test_what_reading_once_saves_is_told_at_the_line_that_reads() -> None:
    (one,) = found(READ)
    assert one.severity == "warning" and one.location is not None and one.location.line == 4
    assert one.message.startswith("the same 10 members of .npz files are read again and again: 20.0 ms of a step of 50")
    assert "99 % of them were of what had been read earlier in the same pass" in one.cause
    assert one.remedy is not None and "4.0 kB for those seen" in one.remedy.summary
    assert [r.line for r in one.related if r.role == "called-from"] == [7]


@pytest.mark.parametrize(
    ("read", "severity"),
    [
        (replace(READ, seconds=1.2), "info"),
        (replace(READ, seconds=0.2), None),
        (replace(READ, again=400, members=500), None),
        (replace(READ, steps=4, seconds=0.08), None),
        (replace(READ, callers=[Place(PATH, 12, "validate")]), None),
    ],
    ids=["a fifth of a step", "a trifle", "each once", "few steps", "an evaluation's"],
)
def test_it_is_graded_by_what_is_saved(read: ReadAgain, severity: str | None) -> None:
    (one,) = found(read)
    if severity is None:
        assert one.message.startswith("the step waits for its batch")
    else:
        assert one.severity == severity and "read again" in one.message


def test_two_calls_on_one_line_are_one_finding() -> None:
    half = replace(READ, seconds=1.0)
    (one,) = found(half, replace(half, id=1, name="label"))
    assert one.measured is not None and one.measured.seconds_per_step == pytest.approx(0.02)


def test_of_workers_no_more_is_saved_than_is_waited_for() -> None:
    waits = spent(2.0, LOOP, phase="data", stage="wait")
    line = spent(3.8, ITEM, LOOP, phase="data", stage="item")
    workers = WorkerTimes(workers=2, seconds=8.0, busy=7.6, lines=[line])
    reads = replace(READ, steps=0, workers=2, watched=8.0, seconds=2.0)
    (one,) = found(reads, workers, lines=(waits,))
    # A fourth of what the workers do, and they are what the step waits for.
    assert one.measured is not None and one.measured.seconds_per_step == pytest.approx(0.01)
    assert one.message.startswith("the same 10 members") and "2 workers" in one.cause
    (one,) = found(replace(reads, seconds=7.0), workers, lines=(waits,))
    assert one.measured is not None and one.measured.seconds_per_step == pytest.approx(0.02)


def test_a_loop_that_reads_by_itself() -> None:
    here = Place(PATH, 10, "train")
    line = spent(2.5, here, calls="other")
    assert len(found(lines=(line,), code="OPS304")) == 1
    read = replace(READ, place=here, callers=[], in_loader=False)
    assert found(read, lines=(line,), code="OPS304") == []
    (one,) = found(read, lines=(line,))
    assert one.severity == "warning" and "just before" in one.cause and not one.related
