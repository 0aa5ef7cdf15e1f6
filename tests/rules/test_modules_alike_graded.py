"""Loops over modules of one shape: graded by the time of the loop and of the backward passes through it."""

from __future__ import annotations

from typing import Any

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place, Program, Source
from torchvet.recording.records.timing import LineOperations, LineTime, LineTimes, OperatorsAt, Phase, RowCalls

PATH = "/home/user/train.py"
TEXT = """class Maps:
    def forward(self, x):
        for i, m in enumerate(self.maps):
            out[:, i] = m(x[:, i])
        return out
def train(model, loader, optimizer):
    for x in loader:
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
"""
SPENT: tuple[tuple[int, float, Phase], ...] = ((4, 3.0, "forward"), (9, 4.0, "backward"), (10, 3.0, "optimizer"))


def found(**more: Any) -> list[Finding]:
    ran = Program(argv=[], path=PATH, cwd="", python="3.11", torch="2.13.0", device="cpu", started=0.0, pid=1)
    lines = [
        LineTime(place=Place(PATH, n, "Maps.forward" if n < 6 else "train"), seconds=s, looks=80, steps=80, phase=phase)
        for n, s, phase in SPENT
    ]
    times = LineTimes(seconds=10.0, steps=100, looks=400, interval=0.01, own=0.0, lines=lines)
    operators = LineOperations(sampled=4, lines=[OperatorsAt(place=Place(PATH, 4, "Maps.forward"), count=400)])
    facts = {"one": 0.0001, "together": 0.001, "late": 0.5, "differentiated": "summed", **more}
    calls = RowCalls(
        place=Place(PATH, 4, "Maps.forward"), module="Linear", modules=40, rows=40, loops=12, sampled=6, timed=40,
        **facts,
    )  # fmt: skip
    rank = RankRecording(0, [ran, Source(path=PATH, text=TEXT), times, operators, calls])
    return [f for f in diagnose(Recording([rank]), select=["OPS318"]).findings if f.code == "OPS318"]


def test_what_one_product_would_save_is_told_and_graded() -> None:
    (finding,) = found()
    # Three quarters of the loop's three seconds, and of half of the backward passes' four.
    assert finding.severity == "warning"
    assert finding.message == (
        "40 Linear modules of one shape are called one after the other in each of 2 loops of a step: one batched "
        "product of their weights would save 37.5 ms of a step of 100.0 ms (38 %)"
    )
    assert "4.0 ms one by one, and 1.0 ms by one batched product" in finding.cause
    assert [r.line for r in finding.related if r.role == "loop"] == [3]
    assert not finding.remedy.edits


def test_without_a_gain_nothing_is_said() -> None:
    assert not found(together=0.0038)
    assert [f.severity for f in found(together=0.003, late=0.0)] == ["info"]
