"""The seconds of lines, with those of the calls around them."""

from __future__ import annotations

import pytest

from torchvet.analysis.line_times import timing_of
from torchvet.recording.reader import RankRecording
from torchvet.recording.records.base import Place, Program
from torchvet.recording.records.timing import LineTime, LineTimes, Phase, Stage


def line(number: int, seconds: float, phase: Phase, stage: Stage = "") -> LineTime:
    return LineTime(
        place=Place("/train.py", number, "train"), seconds=seconds, looks=20, steps=20, phase=phase, stage=stage
    )


LINES = [
    line(3, 2.0, "backward"),
    line(2, 1.0, "data", "collate"),
    line(1, 0.5, "data", "start"),
    line(4, 0.4, "forward"),
]


def seconds(calls: dict[str, float], lines: list[LineTime] = LINES) -> dict[int, float]:
    ran = Program(argv=[], path="/train.py", cwd="", python="3.12", torch="2.13", device="cpu", started=0.0, pid=1)
    times = LineTimes(seconds=4.0, steps=100, looks=80, interval=0.05, own=0.0, rest=0.1, calls=calls, lines=lines)
    timing = timing_of(RankRecording(0, [ran, times]))
    assert timing is not None
    assert timing.times.seconds == 4.0
    assert timing.times.rest + sum(one.seconds for one in timing.times.lines) == pytest.approx(4.0)
    return {one.place.line: round(one.seconds, 6) for one in timing.times.lines}


def test_lines_have_the_seconds_of_the_calls_around_them_and_others_the_rest() -> None:
    found = seconds({"data": 2.0, "backward": 1.5})
    # What a loader's beginning takes is no batch: it shares the rest, half a second, with the forward pass.
    assert found == {2: 2.0, 3: 1.5, 1: 0.25, 4: 0.2}
    # Those that took most come first.
    assert list(found) == [2, 3, 1, 4]


@pytest.mark.parametrize(
    "calls",
    [
        {},
        {"data": 0.0},
        # Batches that no look has seen: which line would have them is not known.
        {"optimizer": 1.0},
        # More than there was.
        {"data": 3.0, "backward": 1.5},
    ],
)
def test_they_stay_where_the_calls_say_nothing(calls: dict[str, float]) -> None:
    assert seconds(calls) == {3: 2.0, 2: 1.0, 1: 0.5, 4: 0.4}


def test_a_call_that_was_not_heard_is_of_the_rest() -> None:
    assert seconds({"data": 2.0, "backward": 0.0}) == {2: 2.0, 3: 1.333333, 1: 0.333333, 4: 0.266667}
