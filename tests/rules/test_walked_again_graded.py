"""Backward passes through the same nodes: graded by the time that one pass would save."""

from __future__ import annotations

from typing import Any

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place, Program, Record, Source
from torchvet.recording.records.passes import WalkedAgain
from torchvet.recording.records.timing import LineTime, LineTimes, Phase
from torchvet.recording.records.training import BackwardUse, Ran

PATH = "/home/user/train.py"
TEXT = """import torch
def train(model, heads, loader, optimizer):
    for x, y in loader:
        features = model(x)
        first, second = heads(features)
        optimizer.zero_grad()
        first.backward(retain_graph=True)
        second.backward()
        optimizer.step()
"""
SPENT: tuple[tuple[int, float, Phase], ...] = (
    (4, 2.0, "forward"), (7, 3.0, "backward"), (8, 3.0, "backward"), (9, 1.0, "optimizer"),
)  # fmt: skip


def place(line: int) -> Place:
    return Place(PATH, line, "train")


def found(code: str, *records: Record, text: str = TEXT) -> list[Finding]:
    ran = Program(argv=[], path=PATH, cwd="", python="3.11", torch="2.13.0", device="cpu", started=0.0, pid=1)
    lines = [LineTime(place=place(n), seconds=s, looks=80, steps=80, phase=phase) for n, s, phase in SPENT]
    times = LineTimes(seconds=9.0, steps=100, looks=400, interval=0.01, own=0.0, lines=lines)
    rank = RankRecording(0, [ran, Source(path=PATH, text=text), times, *records])
    return [f for f in diagnose(Recording([rank]), select=[code]).findings if f.code == code]


def walked(**more: Any) -> WalkedAgain:
    facts: dict[str, Any] = {"steps": 6, "passes": 12, "nodes": 20, "share": 0.45, **more}
    return WalkedAgain(id=0, place=place(7), lines=[place(7), place(8)], **facts)


def test_what_one_pass_would_save_is_told_and_graded() -> None:
    (finding,) = found("OPS319", walked())
    assert finding.severity == "warning"
    assert finding.message == (
        "2 backward passes of a step go through the same 20 nodes of the graph: one pass from the sum of the losses "
        "would save 27.0 ms of a step of 90.0 ms (30 %)"
    )
    assert [edit.text for edit in finding.remedy.edits] == ["(first + second).backward()"]
    assert not finding.remedy.safe
    (finding,) = found("OPS319", walked(share=0.2))
    assert finding.severity == "info"


def test_operators_that_are_only_counted_are_a_note() -> None:
    (finding,) = found("OPS319", walked(timed=False))
    assert finding.severity == "info" and "operators (a device's seconds are not known)" in finding.cause


def test_little_and_what_was_seen_too_seldom_are_silent() -> None:
    assert not found("OPS319", walked(share=0.05))
    assert not found("OPS319", walked(steps=2, passes=4))


def test_a_graph_that_a_later_step_needs_has_no_edit() -> None:
    (finding,) = found("OPS319", walked(kept=True))
    assert not finding.remedy.edits


def test_a_graph_that_was_seen_to_be_used_again_is_not_called_unused() -> None:
    kept = TEXT.replace("second.backward()", "optimizer.step()").replace("first, second = heads", "first = loss_of")
    use = BackwardUse(place=place(7), flag="retain_graph", calls=9, judged=8, reused=8, held=100, peak=1000)
    ran = Ran(path=PATH, lines=list(range(3, 10)))
    assert found("MEM109", ran, text=kept)
    assert not found("MEM109", ran, use, text=kept)
