"""Pages of `amp`, `whatif` and `fix`: their first line, and the charts of their runs."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from handmade import FILE, GIB, census, holding, outcome, program, rank, steps

from torchvet.analysis.amp import Trial, result_of
from torchvet.analysis.amp_facts import amp_facts
from torchvet.analysis.forecast import Forecast
from torchvet.analysis.forecast_facts import forecast_facts
from torchvet.charts import Chart
from torchvet.finding import Finding, Holder, Location, Measured, Remedy, Report
from torchvet.recording import Recording
from torchvet.recording.records.amp import AmpRun
from torchvet.recording.records.base import Place, Record, Window
from torchvet.recording.records.forecast import ForecastGradient, ForecastRun, ForecastSite
from torchvet.renderers import renderer_for
from torchvet.renderers.html import page as page_module
from torchvet.renderers.html.from_facts import charts_of_facts
from torchvet.verifying import trial as runs
from torchvet.verifying.report import Told, report_of
from torchvet.verifying.search import Fix, Search
from torchvet.whatif.report import whatif

pytest.importorskip("plotly", reason="plotly is not installed")
CATEGORIES = {"parameters": 10_000_000, "activations": 66_000_000}


def charts(report: Report) -> dict[str, Chart]:
    faults: list[str] = []
    found = charts_of_facts(report, faults)
    assert faults == []
    return {chart.id: chart for chart in found}


def page(report: Report, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(page_module, "plotly", lambda: "/* plotly */")
    return renderer_for("html").render(report)


def what_if(growth: int, limit: int | None = GIB) -> Report:
    peak = sum(CATEGORIES.values())
    looks = [census(t, holding("losses", graph=growth * t)) for t in (5, 6, 9, 14, 21, 32, 48)]
    seen = Window(id=1, first=9, last=9, kind="training", born=peak, peak=peak, categories=CATEGORIES)
    records: list[Record] = [program(memory_limit=limit or 0), *steps(50), seen, *looks, outcome(50)]
    return whatif(Recording([rank(*records)]), [], None, [])


def precisions() -> Report:
    def run(mode: Any, seconds: float) -> Trial:
        place = Place(FILE, 9, "main")
        own = AmpRun(mode=mode, device="cpu", how="own", seconds=[seconds] * 10, losses=[1.0] * 10, place=place)
        return Trial(mode=mode, run=own, peak=1000, activations=400)

    failed = Trial(mode="bfloat16", run=None, error="no kernel")
    result = result_of([run("float32", 0.01), run("float16", 0.02), failed])
    assert result is not None
    return Report(subject={"kind": "amp", "path": FILE}, verdict="clean", facts={"amp": amp_facts(result)})


def fixed() -> Report:
    leak = Finding(
        code="MEM101",
        name="graph-retained",
        evidence="observed",
        severity="error",
        message="m",
        cause="c",
        location=Location(path=FILE, line=4),
        holder=Holder(name="kept", kind="local"),
        measured=Measured(bytes_per_step=2e6),
        remedy=Remedy(summary="detach"),
    )
    curve: list[float | None] = [1.0] * 40
    before = runs.Trial([leak], 40, curve=curve, rates={"kept": 2e6}, windows=5, seconds_per_step=0.07)
    after = runs.Trial([], 40, curve=curve, rates={"kept": 4.0}, windows=5, seconds_per_step=0.06)
    verified = Search(before, lambda fixes: after).run([Fix(leak)])
    subject = {"kind": "fix", "path": FILE, "module": None, "argv": [FILE]}
    return report_of(Told(subject, before, [leak], "", 0, 1e-4), verified)


def test_a_forecast_of_no_memory_is_not_called_health(monkeypatch: pytest.MonkeyPatch) -> None:
    report = what_if(1_000_000)
    for text in (page(report, monkeypatch), renderer_for("markdown").render(report)):
        assert "out of memory at step" in text and "No fault found" not in text and "no finding" not in text


def test_what_ends_and_when_is_drawn_and_what_never_does_is_said() -> None:
    found = charts(what_if(1_000_000))
    memory, ends = found["memory"], found["ends"]
    last = memory.series[0].x[-1]
    at_end = sum(series.y[-1] or 0.0 for series in memory.series)
    room = next(mark.y for mark in memory.marks if mark.y is not None)
    assert last == next(mark.x for mark in memory.marks if mark.x is not None)
    assert 0 <= at_end - (room or 0.0) < 1_000_000, "memory ends in the step in which it passes the room there is"
    assert ends.labels[0] == "as it is" and ends.series[0].y[0] == ends.series[1].y[0] == last
    healthy = charts(what_if(0))
    assert "ends" not in healthy and not [mark for mark in healthy["memory"].marks if mark.x is not None]


def test_each_precision_that_ran_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    report = precisions()
    found = charts(report)
    assert found["time"].labels == ["float32", "float16"], "the third could not be measured"
    assert found["time"].series[0].y == pytest.approx([0.01, 0.02])
    assert [series.y for series in found["memory"].series] == [[1000.0, 1000.0], [400.0, 400.0]]
    assert re.findall('<section id="(time|memory)"', page(report, monkeypatch)) == ["time", "memory"]


def test_headroom_is_drawn_by_module(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "Net.</script><script>alert(1)</script>"
    report = precisions()
    site = ForecastSite(operator="addmm", module=hostile, calls=3, largest=2.0**17, overflows=3)
    flow = ForecastGradient(kind="activation", name="g", module=hostile, largest=2.0**-20, exponents={-20: 9})
    facts = forecast_facts(Forecast(ForecastRun(first=1, last=9, sampled=9), [site], [flow]))
    report = msgspec.structs.replace(report, facts={**report.facts, "precision_forecast": facts})
    chart = charts(report)["headroom"]
    assert chart.labels == [hostile] and [series.y for series in chart.series] == [[-1.0], [-7], [28]]
    assert "is 1 bit above float16's largest" in chart.caption and "7 bits below its smallest" in chart.caption
    assert len(chart.rows[0]) == len(chart.columns) and chart.rows[0][2:4] == ["-1", "111"]
    text = page(report, monkeypatch)
    assert '<section id="headroom"' in text and hostile not in text and "alert(1)" in text
    del facts["modules"]
    assert "headroom" not in charts(report), "a report of an earlier version has none"


def test_a_fix_is_drawn_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    report = fixed()
    found = charts(report)
    assert [series.y for series in found["growth"].series] == [[2e6], [4.0]]
    assert [series.y for series in found["time"].series] == [[0.07], [0.06]]
    assert "no proof" in found["time"].caption
    text = page(report, monkeypatch)
    assert "1 of 1 fix proven in 2 runs" in text and "torchvet fix" in text
    read_only = msgspec.structs.replace(report, facts={"fix": {**report.facts["fix"], "proven": []}})
    assert charts(read_only) == {}
