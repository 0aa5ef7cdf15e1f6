"""Steps are found without the profiler's marks, and what happens once is not told as if it happened always."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from trace_building import Program, step

from torchvet.finding import Report
from torchvet.renderers import renderer_for
from torchvet.traces import report_on

STEPS = 6


def codes(report: Report) -> list[str]:
    return [f.code for f in report.findings]


def with_optimizer(program: Program) -> None:
    step(program)


def with_loader(program: Program) -> None:
    program.load(500)
    for n in range(40):
        program.op(300, 30, f"aten::op{n % 7}")


def bare(program: Program) -> None:
    program.op(900, 30, "aten::embedding")
    for n in range(40):
        program.op(300, 30, f"aten::op{n % 7}")
    program.op(900, 30, "aten::nll_loss")
    with program.backward():
        program.op(300, 30)
    program.op(900, 30, "aten::argmax")


@pytest.mark.parametrize(
    ("body", "found_by"),
    [(with_optimizer, "optimizer steps"), (with_loader, "loader batches"), (bare, "a repeated operator")],
)
def test_steps_are_found_without_marks(tmp_path: Path, body: Callable[[Program], None], found_by: str) -> None:
    marked = report_on([Program().train(STEPS, body).write(tmp_path / "marked.json")])
    report = report_on([Program().train(STEPS, body, marked=False).write(tmp_path / "bare.json")])
    assert report.facts["step"]["found_by"] == found_by
    assert abs(report.facts["steps"] - STEPS) <= 1
    assert report.facts["step"]["seconds"] == pytest.approx(marked.facts["step"]["seconds"], rel=0.25)
    assert codes(report) == codes(marked) == []
    assert f"found by {found_by}" in renderer_for("text").render(report)


def test_a_trace_without_steps_is_looked_at_as_a_whole(tmp_path: Path) -> None:
    program = Program()
    for n in range(50):
        program.op(100, 30, f"aten::op{n}")
    report = report_on([program.train(0, bare).write(tmp_path / "a.json")])
    assert (report.facts["step"]["found_by"], report.facts["steps"]) == ("the whole trace", 0)
    assert "nothing marks its steps" in renderer_for("text").render(report)


def test_a_trace_of_nothing_is_not_called_clean(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": []}')
    report = report_on([path])
    assert report.verdict == "undetermined"
    assert "no operator" in report.not_checked[0].reason


def test_a_wait_costs_no_more_than_it_lasted(tmp_path: Path) -> None:
    """200 ms of Python after a wait of 25: without the wait the host would have been ahead by 25."""

    def saves(program: Program, waits: bool = True) -> None:
        step(program)
        if waits:
            program.item()
        program.python(200_000)

    faulty = Program().train(STEPS, saves)
    healthy = Program().train(STEPS, lambda p: saves(p, waits=False))
    report = report_on([faulty.write(tmp_path / "a.json")])
    finding = next(f for f in report.findings if f.code == "OPS101")
    assert finding.measured.seconds_per_step == pytest.approx((faulty.seconds - healthy.seconds) / STEPS, rel=0.10)
    assert report.facts["gpu"]["idle"]["host"] == pytest.approx(0.175, rel=0.05)


@pytest.mark.parametrize(("wait", "said"), [(400_000, "most of it the loader"), (30_000, "start of an epoch")])
def test_the_start_of_an_epoch_is_not_the_loaders_usual_speed(tmp_path: Path, wait: float, said: str) -> None:
    count = iter(range(STEPS))

    def body(program: Program) -> None:
        program.item()
        program.load(wait if next(count) == 2 else 200, workers=4)
        step(program)

    report = report_on([Program().train(STEPS, body).write(tmp_path / "a.json")])
    assert "OPS301" not in codes(report)
    assert any(said in n.reason for n in report.not_checked)


def test_compiling_in_the_first_step_is_no_recompilation(tmp_path: Path) -> None:
    count = iter(range(STEPS))

    def body(program: Program) -> None:
        if next(count) == 0:
            with program.annotated("_compile.compile_inner (dynamo_timed)"):
                program.python(300_000)
        step(program)

    assert codes(report_on([Program().train(STEPS, body).write(tmp_path / "a.json")])) == []


def test_codes_can_be_chosen(tmp_path: Path) -> None:
    def body(program: Program) -> None:
        program.load(30_000)
        step(program)
        program.item()

    path = Program().train(STEPS, body).write(tmp_path / "a.json")
    assert codes(report_on([path])) == ["OPS301"]
    assert codes(report_on([path], select=["OPS1"])) == []
    assert codes(report_on([path], ignore=["OPS3"])) == []


def test_memory_events_give_the_peak_and_what_rises(tmp_path: Path) -> None:
    program = Program()
    count = iter(range(STEPS))

    def body(program: Program) -> None:
        step(program)
        held = 1_000_000_000 + 5_000_000 * next(count)
        for allocated in (held + 700_000_000, held):
            program.host += 1
            program.events.append({
                "ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": program.host,
                "args": {"Device Type": 1, "Device Id": 0, "Total Allocated": allocated,
                         "Total Reserved": 4_000_000_000},
            })  # fmt: skip

    report = report_on([program.train(STEPS, body).write(tmp_path / "a.json")])
    (memory,) = report.facts["memory"]
    assert memory == {"device": "cuda:0", "peak": 1_725_000_000, "reserved": 4_000_000_000,
                      "growth_per_step": 5_000_000.0}  # fmt: skip
    assert "rises by 5.0 MB" in renderer_for("text").render(report)


def test_arithmetic_and_alignment(tmp_path: Path) -> None:
    def body(program: Program) -> None:
        for _ in range(10):
            program.op(300, 30, "aten::mm", "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nn")
            program.events[-2]["args"]["External id"] = program.events[-3]["args"]["External id"] = program.number
            program.events[-1]["args"] = {"External id": program.number, "Input Dims": [[64, 1001], [1001, 64]],
                                          "Input type": ["c10::Half", "c10::Half"]}  # fmt: skip
        for _ in range(10):
            program.op(100, 30, "aten::mm", "ampere_sgemm_128x64_nn")

    report = report_on([Program().train(STEPS, body).write(tmp_path / "a.json")])
    assert report.facts["precision"] == {
        "fp16 tensor cores": pytest.approx(0.75), "fp32 without tensor cores": pytest.approx(0.25)
    }  # fmt: skip
    assert report.facts["misaligned"][0]["sizes"] == "(64, 1001) x (1001, 64)"
    assert report.facts["misaligned"][0]["seconds"] == pytest.approx(0.003)
