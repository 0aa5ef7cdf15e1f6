"""Work of a step that is done many times, or for rows that nobody needs: graded by the time of its lines."""

from __future__ import annotations

from typing import Any

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place, Program, Record, Source
from torchvet.recording.records.timing import LineTime, LineTimes, Phase, RepeatedPasses

PATH = "/home/user/train.py"
TEXT = """import torch
def train(model, optimizer):
    for x, y in data:
        out = model(x)
        rows = [
            torch.autograd.grad(out[i], x, retain_graph=True)
            for i in range(100)]
        loss = f(out, y)
        loss.backward()
        optimizer.step()
"""
AT = Place(PATH, 6, "train.<locals>.<listcomp>")


def spent(seconds: float, line: int, phase: Phase = "forward") -> LineTime:
    return LineTime(place=Place(PATH, line, "train"), seconds=seconds, looks=80, steps=80, phase=phase)


def found(code: str, record: Record, *lines: LineTime, steps: int = 100, **more: Any) -> list[Finding]:
    ran = Program(argv=[], path=PATH, cwd="", python="3.11", torch="2.13.0", device="cpu", started=0.0, pid=1, **more)
    seconds = sum(x.seconds for x in lines)
    times = LineTimes(seconds=seconds, steps=steps, looks=400, interval=0.01, own=0.0, lines=list(lines))
    recording = Recording([RankRecording(0, [ran, Source(path=PATH, text=TEXT), times, record])])
    return [f for f in diagnose(recording, select=[code]).findings if f.code == code]


def repeated(rows: float, nodes: int = 20, **more: Any) -> list[Finding]:
    record = RepeatedPasses(place=AT, steps=4, graphs=4, passes=400, nodes=nodes, **more)
    return found("OPS308", record, spent(rows, 6, "backward"), spent(1.0, 9, "backward"), spent(1.0, 4))


def test_rows_of_a_jacobian_are_told_with_the_time_of_their_line() -> None:
    (finding,) = repeated(2.0)
    assert (finding.severity, finding.location and finding.location.line) == ("warning", 6)
    assert (
        finding.message
        == "backward runs through the same graph 100 times in a step: 20.0 ms of a step of 40.0 ms (50 %)"
    )
    assert "is_grads_batched" in finding.remedy.summary and "2.0 times faster at most" in finding.cause
    assert "vectorize=True" in repeated(2.0, by_torch=True)[0].remedy.summary
    assert "backward()` of the sum" in repeated(2.0, is_grad=False)[0].remedy.summary


def test_rows_whose_time_is_arithmetic_or_little_are_a_note_or_silent() -> None:
    (finding,) = repeated(2.0, nodes=5)
    assert finding.severity == "info" and "takes 40 us, which is arithmetic" in finding.cause
    assert [f.severity for f in repeated(0.4)] == ["info"]
    assert not repeated(0.05)


def test_without_times_nothing_is_said() -> None:
    record = RepeatedPasses(place=AT, steps=4, graphs=4, passes=400, nodes=20)
    assert not found("OPS308", record)
    assert not found("OPS308", record, spent(2.0, 6), simulated="l4")
