"""What is said per step holds for steady steps: a slow first one, one long one and an empty last one are set apart."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from trace_building import Program, step

from torchvet.comparing import compare
from torchvet.comparing.report import report_on as report_on_comparison
from torchvet.comparing.traces import side_of
from torchvet.finding import Report
from torchvet.renderers import renderer_for
from torchvet.traces import report_on

STEPS = 6
STEADY = pytest.approx(27.3e-3, rel=0.02)
"""Seconds that `step` takes: 91 kernels of 300 us."""
Body = Callable[[Program], None]


def at(number: int, what: Body, otherwise: Body = lambda p: None) -> Body:
    """A step with something of its own in step `number`, and something else in the others."""
    numbers = count()

    def body(program: Program) -> None:
        (what if next(numbers) == number else otherwise)(program)
        step(program)
        program.item()

    return body


def starts(program: Program) -> None:
    """One operator that starts everything: five seconds on the host until its only kernel."""
    program.op(50, 5_000_000, "aten::cudnn_convolution")


def pauses(program: Program) -> None:
    program.python(2_000_000)


def loads(program: Program) -> None:
    program.load(40_000)


def of(tmp_path: Path, program: Program, name: str = "a.json", **header: Any) -> Report:
    return report_on([program.write(tmp_path / name, **header)])


def text(report: Report) -> str:
    return " ".join(renderer_for("text").render(report).split())


@pytest.mark.parametrize("marked", [True, False])
def test_a_slow_first_step_is_apart(tmp_path: Path, marked: bool) -> None:
    report = of(tmp_path, Program().train(STEPS, at(0, starts), marked))
    facts = report.facts["step"]
    assert (facts["steady"], [s["why"] for s in facts["apart"]]) == (STEPS - 1, ["first"])
    assert facts["seconds"] == STEADY and facts["median"] == STEADY
    assert report.facts["steps"] == len(facts["durations"]) == STEPS
    assert report.facts["gpu"]["busy_share"] > 0.97
    assert report.findings == []
    assert "first step 5.0 s, apart" in text(report)


def test_what_the_later_steps_wait_for_is_found_behind_a_slow_first_one(tmp_path: Path) -> None:
    report = of(tmp_path, Program().train(STEPS, at(0, starts, loads)))
    (finding,) = report.findings
    assert (finding.code, finding.severity) == ("OPS301", "warning")
    assert finding.measured.seconds_per_step == pytest.approx(0.040, rel=0.02)


def test_several_slow_steps_at_the_beginning_are_apart(tmp_path: Path) -> None:
    numbers = count()

    def body(program: Program) -> None:
        program.python([3_000_000, 400_000, 0, 0, 0, 0][next(numbers)])
        step(program)
        program.item()

    report = of(tmp_path, Program().train(STEPS, body))
    assert [s["why"] for s in report.facts["step"]["apart"]] == ["first", "first"]
    assert "first 2 steps 3.0 s, 427 ms, apart" in text(report)


@pytest.mark.parametrize("milliseconds", [[30, 15, 40, 12], [30, 10], [30, 20, 20, 20], [20, 20, 30, 30]])
def test_uneven_steps_stay_together(tmp_path: Path, milliseconds: list[int]) -> None:
    lasts = iter(milliseconds)
    report = of(tmp_path, Program().train(len(milliseconds), lambda p: p.op(10, next(lasts) * 1000)))
    assert report.facts["step"]["apart"] == []


def test_one_long_step_among_even_ones_is_said_and_apart(tmp_path: Path) -> None:
    report = of(tmp_path, Program().train(20, at(12, pauses)))
    assert report.facts["step"]["seconds"] == STEADY
    assert "one step took 2.0 s: step 12, apart" in text(report)
    assert "step 12" in [n.check for n in report.not_checked]
    assert report.facts["gpu"]["idle"].get("host", 0.0) == 0.0


def test_a_long_step_that_compiles_is_a_fault_and_stays(tmp_path: Path) -> None:
    def compiles(program: Program) -> None:
        with program.annotated("_compile.compile_inner (dynamo_timed)"):
            program.python(2_000_000)

    report = of(tmp_path, Program().train(20, at(12, compiles)))
    assert [f.code for f in report.findings] == ["OPS303"]


def test_two_long_steps_are_how_it_is(tmp_path: Path) -> None:
    numbers = count()

    def body(program: Program) -> None:
        program.python(500_000 if next(numbers) % 5 == 4 else 0)
        step(program)
        program.item()

    report = of(tmp_path, Program().train(10, body))
    facts = report.facts["step"]
    assert facts["apart"] == [] and facts["median"] == STEADY
    assert facts["seconds"] == pytest.approx(0.127, rel=0.02)
    assert "mean 127 ms" in text(report)


def test_an_empty_last_step_is_none(tmp_path: Path) -> None:
    program = Program().train(1, lambda p: [step(p), p.item()][0])
    program.span("user_annotation", "ProfilerStep#1", program.host - 50_000, program.host - 49_980)
    report = of(tmp_path, program)
    assert report.facts["step"]["seconds"] == STEADY
    assert "an empty last step apart" in text(report)


def test_the_devices_lag_makes_no_step_longer(tmp_path: Path) -> None:
    """The device is one step behind from the first step on, and never catches up."""
    program = Program()
    program.op(200_000, 30)
    report = of(tmp_path, program.train(STEPS, step))
    assert report.facts["step"]["seconds"] == STEADY
    assert report.facts["gpu"]["busy_share"] > 0.99


def test_busy_is_what_the_table_says(tmp_path: Path) -> None:
    def body(program: Program) -> None:
        program.python(50_000)
        program.op(10_000)
        program.python(40_000)

    report = of(tmp_path, Program().train(2, body))
    gpu = report.facts["gpu"]
    assert gpu["busy_share"] == pytest.approx(1 / 9, abs=0.01)
    parts = gpu["compute"] + gpu["communication"] + gpu["copies"]
    assert gpu["busy_share"] == pytest.approx(parts / report.facts["step"]["seconds"])


def test_a_comparison_goes_by_steady_steps(tmp_path: Path) -> None:
    """The first step of the fixed program is the slower one."""
    numbers = count()

    def fixed(program: Program) -> None:
        if next(numbers) == 0:
            program.op(50, 9_000_000)
        step(program)
        program.item()

    before = Program().train(STEPS, at(0, starts, loads)).write(tmp_path / "before.json")
    after = Program().train(STEPS, fixed).write(tmp_path / "after.json")
    totals = {d.title: d.growth for d in compare(side_of(before), side_of(after)).differences}
    assert totals["step by phase"] == pytest.approx(-0.59, abs=0.02)
    assert totals["median step"] == pytest.approx(-0.59, abs=0.02)


def test_a_change_of_less_than_one_in_a_hundred_has_no_sign(tmp_path: Path) -> None:
    before = Program().train(STEPS, step).write(tmp_path / "before.json")
    after = Program().train(STEPS, lambda p: [p.op(20), step(p)][0]).write(tmp_path / "after.json")
    said = text(report_on_comparison(compare(side_of(after), side_of(before))))
    assert "(< 1 % less)" in said and "-<" not in said and " -0 us" not in said


@pytest.mark.parametrize("waits", [True, False])
def test_work_of_the_time_before_the_recording_is_no_part_of_the_first_step(tmp_path: Path, waits: bool) -> None:
    """The device is behind when the recording begins: the launches of what it still has to do are not in the trace."""
    program = Program()
    for _ in range(2):
        step(program)
    if waits:
        program.item()
    recorded = Program.train(program, STEPS, step)
    first = min(e["ts"] for e in recorded.events if e["name"].startswith("ProfilerStep"))
    lost = [e for e in recorded.events if e["cat"] != "kernel" and e["ts"] < first]
    recorded.events = [e for e in recorded.events if e not in lost]
    facts = of(tmp_path, recorded).facts
    assert facts["step"]["apart"] == [] and facts["step"]["steady"] == STEPS
    assert facts["step"]["seconds"] == STEADY
    assert facts["gpu"]["kernels_per_step"] == pytest.approx(91)
