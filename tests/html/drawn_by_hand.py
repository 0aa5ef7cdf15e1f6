"""Recordings by hand that have something for every chart, and their pages."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from handmade import census, holding, outcome, program, rank, site
from trace_building import Program as Traced

from torchvet.charts import Drawing
from torchvet.diagnosis.diagnose import diagnose
from torchvet.drawing.run import drawing_of
from torchvet.finding import Report
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Record, Source, Step, Window
from torchvet.recording.records.nonfinite import NonFiniteTotals
from torchvet.recording.records.ranks import Member
from torchvet.recording.records.scaling import ScalingUse
from torchvet.recording.records.training import HostSamples
from torchvet.recording.records.verify import Losses
from torchvet.renderers import renderer_for

FILE = "/project/train.py"
TEXT = """\
def main():
    history = []
    for x, y in loader:
        loss = step(x, y)
        history.append(loss)
        print(loss)
    return history
"""
PHASES = {"data": 0.01, "backward": 0.03, "optimizer": 0.01, "other": 0.05}


def steps(number: int) -> list[Record]:
    """One record a step, with the seconds of its phases."""
    return [Step(n=n, kind="training", t=0.1 * n, phases=PHASES) for n in range(1, number + 1)]


def leak(number: int = 60, name: str = "history", more: list[Record] | None = None) -> list[Record]:
    """The records of a run in which a list keeps 4 kB a step."""
    searched = [
        census(at, holding(name, graph=4000 * at, sites=[site(line=4)]), categories={"parameters": 900})
        for at in (8, 16, 32, number - 4)
    ]
    windows = [
        Window(id=i, first=at, last=at + 1, kind="training", born=9000, peak=9000, sites=[site(line=4, size=5000)])
        for i, at in enumerate((2, 5, 20))
    ]
    for window in windows:
        window.categories = {"parameters": 900, "activations": 8000, "gradients": 100}
    heap = HostSamples(ticks=list(range(1, number + 1)), heap=[10**6 + 4000 * n for n in range(1, number + 1)])
    losses = [Losses(tick=n, values=[1 / n], gradients=[0.5]) for n in range(1, number)]
    scales: list[Record] = [ScalingUse(id=1, name="scaler", place=None, device="cuda", enabled=True, scale=2.0**16)]
    records: list[Record] = [
        program(path=FILE),
        Source(path=FILE, text=TEXT),
        *steps(number),
        *windows,
        *searched,
        heap,
    ]
    return [*records, *losses, *scales, *(more or []), outcome(number)]


def leaking(**given: Any) -> Recording:
    """That run on one rank."""
    return Recording([rank(*leak(**given))])


def ranks(number: int = 4) -> Recording:
    """Some ranks, of which the last takes twice as long."""
    found = []
    for n in range(number):
        slow = 2.0 if n == number - 1 else 1.0
        own: list[Record] = [Step(n=i, kind="training", t=0.1 * slow * i, phases=PHASES) for i in range(1, 41)]
        member = Member(rank=n, world_size=number, host="here")
        found.append(RankRecording(n, [program(path=FILE), member, *own, outcome(40)]))
    return Recording(found)


def long(number: int) -> Recording:
    """A run of so many steps, each written down, whose times go up and down, and one of which is the slowest."""
    records: list[Record] = [program(path=FILE)]
    time = 0.0
    for n in range(1, number + 1):
        time += 0.1 + 0.05 * math.sin(n) + (3.0 if n == number // 3 else 0.0)
        records.append(Step(n=n, kind="training", t=time))
    return Recording([rank(records, outcome(number))])


def broken(number: int = 60) -> Recording:
    """A run whose loss is not finite from a step on."""
    losses = [Losses(tick=n, values=[1.0 if n < 30 else None]) for n in range(1, number)]
    totals = NonFiniteTotals(tick=number, losses=30, first_loss=30, checked=number)
    return Recording([rank(program(path=FILE), *steps(number), *losses, totals, outcome(number))])


def drawn(recording: Recording) -> tuple[Report, Drawing]:
    """The report on a recording, and its charts."""
    report = diagnose(recording)
    drawing = drawing_of(recording, report)
    assert "a bug in torchvet" not in str(drawing.missing)
    return report, drawing


def page_of(recording: Recording) -> str:
    """Its page."""
    report, drawing = drawn(recording)
    return renderer_for("html").render(report, drawing=drawing)


def traced(folder: Path) -> Path:
    """A trace of a device that waits for its loader."""

    def step(run: Traced) -> None:
        run.load(400)
        run.op(60)
        with run.backward():
            run.op(60)
        run.item()

    path = folder / "trace.json"
    path.write_text(Traced().train(8, step).json())
    return path
