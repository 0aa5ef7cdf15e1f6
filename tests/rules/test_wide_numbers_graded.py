"""What OPS320 says of a model in float64, and how it is graded."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place, Program, Source
from torchvet.recording.records.precision import WideNumbers
from torchvet.recording.records.timing import LineTime, LineTimes

PATH = "/home/user/train.py"
TEXT = """import torch
rows = torch.from_numpy(table)
model = make().double()
for x in loader:
    loss = model(x).sum()
    loss.backward()
    step()
"""
SEEN = WideNumbers(
    place=Place(PATH, 6, "<module>"), seconds=0.5, every=0.55, whole=0.6, sampled=10, timed=0.48, wide=0.48, narrow=0.2,
    cast=Place(PATH, 3, "<module>"), loaded=True, batches=True, operators=["addmm", "mm"],
)  # fmt: skip


def spent(seconds: float, line: int, **more: Any) -> LineTime:
    return LineTime(place=Place(PATH, line, "<module>"), seconds=seconds, looks=80, steps=80, **more)


LINES = [spent(2.0, 5, phase="forward"), spent(3.0, 6, phase="backward"), spent(1.0, 4, phase="data", stage="item")]


def found(*more: Any) -> list[Finding]:
    times = LineTimes(seconds=6.0, steps=100, looks=400, interval=0.01, own=0.0, lines=LINES)
    ran = Program(argv=[], path=PATH, cwd="", python="3.11", torch="2.13.0", device="cpu", started=0.0, pid=1)
    recording = Recording([RankRecording(0, [ran, Source(path=PATH, text=TEXT), times, *more])])
    return [f for f in diagnose(recording, select=["OPS320"]).findings if f.code == "OPS320"]


def test_what_float32_saves_is_told_at_the_cast() -> None:
    (one,) = found(SEEN)
    assert one.severity == "warning" and one.location is not None and one.location.line == 3
    assert "2.4 times what they take in float32: 28.0 ms of a step of 60" in one.message
    assert "91 % of the time of all operators" in one.cause and "48.0 ms of them became 20.0 ms" in one.cause
    assert {(r.role, r.line) for r in one.related} == {("most-of-it", 6), ("from", 2)}


def test_without_a_cast_it_is_told_where_most_of_it_is() -> None:
    (one,) = found(replace(SEEN, cast=None, batches=False))
    assert one.location is not None and one.location.line == 6 and not one.related


@pytest.mark.parametrize(
    ("more", "severity"),
    [
        ({"by_default": True}, "info"),
        ({"loaded": False, "batches": False}, "info"),
        ({"solver": "linalg_cholesky_ex"}, "info"),
        ({"derived": True}, "info"),
        ({"narrow": 0.36}, "info"),
        ({"narrow": 0.46}, None),
        ({"narrow": 0.5}, None),
        ({"timed": 0.0, "wide": 0.0, "narrow": 0.0}, None),
    ],
    ids=["default type", "no loader", "solver", "derivatives", "a fifth", "a trifle", "slower", "not timed"],
)
def test_it_is_graded_by_what_is_saved_and_by_what_was_chosen(more: dict[str, Any], severity: str | None) -> None:
    assert [one.severity for one in found(replace(SEEN, **more))] == ([severity] if severity else [])
