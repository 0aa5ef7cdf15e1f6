"""Sorts of which a few are used: graded by what `topk` was measured to save of the line's time."""

from __future__ import annotations

from typing import Any

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place, Program, Source
from torchvet.recording.records.timing import LineTime, LineTimes, SortedForFew

PATH = "/home/user/rank.py"
AT = Place(PATH, 2, "rank")
TEXT = "def rank(scores):\n    return scores.argsort(1)[:, :20]\n"


def found(seconds: float = 5.0, steps: int = 80, **more: Any) -> list[Finding]:
    ran = Program(argv=[], path=PATH, cwd="", python="3.11", torch="2.13.0", device="cpu", started=0.0, pid=1)
    lines = [
        LineTime(place=AT, seconds=seconds, looks=80, steps=steps),
        LineTime(place=Place(PATH, 9, "train"), seconds=10.0 - seconds, looks=80, steps=80, phase="backward"),
    ]
    times = LineTimes(seconds=10.0, steps=100, looks=400, interval=0.01, own=0.0, lines=lines)
    facts: dict[str, Any] = {"seconds": 0.9, "every": 1.0, "whole": 0.01, "topk": 0.001, "last": False, **more}
    seen = SortedForFew(
        place=AT, rows=64, size=9000, few=20, descending=False, dtype="float32", calls=9, sampled=5, **facts
    )
    rank = RankRecording(0, [ran, Source(path=PATH, text=TEXT), times, seen])
    return [f for f in diagnose(Recording([rank]), select=["OPS322"]).findings if f.code == "OPS322"]


def test_what_topk_saves_is_told_and_graded() -> None:
    (finding,) = found()
    # 90 % of the line are sorts, of which `topk` saves nine tenths: 40.5 ms.
    assert finding.severity == "warning" and "40.5 ms of a step of 100.0 ms (41 %)" in finding.message
    assert finding.location is not None and finding.location.line == 2
    assert "the first 20 of each" in finding.message and "topk(20, largest=False)" in finding.remedy.summary
    assert "10.0 ms by sorting, 1.0 ms by `topk`" in finding.cause
    assert [f.severity for f in found(2.0)] == ["info"]
    assert not found(0.5) and not found(topk=0.008) and not found(seconds=0.05)


def test_the_last_ones_and_rare_sorts() -> None:
    (finding,) = found(last=True, steps=4)
    assert "the last 20 of each" in finding.message and "in about one of 25 steps" in finding.message
    assert "`topk(20)` gives" in finding.remedy.summary and "turned round" in finding.remedy.summary
