"""Where a trace does not say what a step is, or why time is lost, the report does not pretend to know."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from trace_building import Program, step

from torchvet.comparing import compare
from torchvet.comparing.report import report_on as report_on_comparison
from torchvet.comparing.traces import side_of
from torchvet.errors import BadInput
from torchvet.finding import Report
from torchvet.readers import blocks
from torchvet.renderers import renderer_for
from torchvet.traces import report_on

LAYER = ("aten::layer_norm", "aten::linear", "aten::gelu", "aten::softmax")


def of(tmp_path: Path, program: Program) -> Report:
    return report_on([program.write(tmp_path / "a.json")])


def text(report: Report) -> str:
    return " ".join(renderer_for("text").render(report).split())


@pytest.mark.parametrize("backward", [False, True])
def test_layers_of_one_pass_are_no_steps(tmp_path: Path, backward: bool) -> None:
    program = Program()
    for _ in range(12):
        for name in LAYER:
            program.op(300, 30, name)
    if backward:
        with program.backward():
            for _ in range(48):
                program.op(300, 30)
    report = of(tmp_path, program.train(0, step))
    assert (report.facts["step"]["found_by"], report.facts["steps"]) == ("the whole trace", 0)
    assert text(report).startswith("No fault found The trace lasts")
    assert "what a step takes" in [n.check for n in report.not_checked]


def test_the_start_of_cuda_is_no_waiting_for_launches(tmp_path: Path) -> None:
    program = Program()
    program.op(1_000, 19_000_000, "aten::add")
    for _ in range(3):
        program.op(1_000, 1_200, "aten::add")
    report = of(tmp_path, program.train(0, step))
    assert report.findings == [] and report.facts["gpu"]["idle"]["host"] > 18
    assert "but the device is idle for 100 % of the time" in text(report)


def first_allocation(program: Program) -> None:
    program.span("cpu_op", "aten::empty", program.host, program.host + 2_200)
    program.python(2_200)
    for _ in range(20):
        program.op(20, 10)


def one_kernel(program: Program) -> None:
    program.op(100, 60)


@pytest.mark.parametrize("body", [first_allocation, one_kernel])
def test_one_step_with_its_start_in_it_is_not_bound_by_launches(tmp_path: Path, body: object) -> None:
    report = of(tmp_path, Program().train(1, body))
    assert "OPS206" not in [f.code for f in report.findings]


def test_without_steps_costs_are_the_traces(tmp_path: Path) -> None:
    program = Program()
    for n in range(20):
        program.op(300, 30, f"aten::op{n}")
    program.copy("HtoD", 4_000, 50_000_000)
    report = of(tmp_path, program.train(0, step))
    (finding,) = report.findings
    assert finding.code == "OPS104" and "of the trace's 10" in finding.message
    assert "step" not in finding.message and "per step" not in text(report)


def test_a_trace_without_steps_is_compared_with_no_step(tmp_path: Path) -> None:
    whole = Program()
    for n in range(20):
        whole.op(300, 30, f"aten::op{n}")
    one = whole.train(0, step).write(tmp_path / "whole.json")
    other = Program().train(6, step).write(tmp_path / "steps.json")
    found = compare(side_of(one), side_of(other))
    assert report_on_comparison(found, gate=0.1).verdict == "undetermined"
    same = {d.title: d for d in compare(side_of(one), side_of(one)).differences}
    assert (same["trace by phase"].unit, same["trace by phase"].growth) == ("seconds", 0.0)


def test_the_first_batch_alone_is_no_slow_loader(tmp_path: Path) -> None:
    program = Program()
    program.load(50_000)
    for n in range(20):
        program.op(300, 30, f"aten::op{n}")
    assert of(tmp_path, program.train(0, step)).findings == []


def behind_each_other(program: Program) -> None:
    """A stream waits for another, which the trace does not say: kernels begin long after their launch."""
    start = program.host
    for n in range(20):
        correlation = program.call("cudaLaunchKernel", 10)
        program.host = start + 20 * n
        program.device = start + 5_000 * (n + 1)
        program.work("kernel", "sgemm", 1_000, correlation)
    program.host = max(program.host, program.device)


def test_idle_time_that_no_rule_explains_is_said(tmp_path: Path) -> None:
    report = of(tmp_path, Program().train(6, behind_each_other))
    assert report.findings == []
    assert report.facts["unexplained"]["most"] == "device"
    assert report.facts["unexplained"]["idle"] == pytest.approx(0.8, abs=0.02)
    assert text(report).startswith("No fault found in 6 steps, but the device is idle for 80 % of the time")
    assert any("between queued work" in n.reason for n in report.not_checked)


def test_idle_time_that_a_rule_explains_is_said_once(tmp_path: Path) -> None:
    def body(program: Program) -> None:
        program.load(30_000)
        step(program)
        program.item()

    report = of(tmp_path, Program().train(6, body))
    assert report.facts["unexplained"] is None
    assert [f.code for f in report.findings] == ["OPS301"]


def test_once_is_not_1_times(tmp_path: Path) -> None:
    def body(program: Program) -> None:
        step(program)
        program.call("cudaStreamSynchronize", program.device - program.host)
        program.python(4_000)

    assert "waits for the device 1 time a step" in text(of(tmp_path, Program().train(6, body)))


def test_a_kernel_outside_of_the_hosts_time_is_not_denied(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    host = '{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 100, "dur": 100}'
    kernel = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 0, "dur": 50}'
    path.write_text(f'{{"traceEvents": [{kernel}, {host}]}}')
    assert any("within the time of the host" in n.reason for n in report_on([path]).not_checked)


@pytest.mark.parametrize("last", ["null, 3", "[" * 50_000 + "]" * 50_000])
def test_complete_json_with_odd_events_does_not_end_in_the_middle(tmp_path: Path, last: str) -> None:
    path = tmp_path / "a.json"
    event = '{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 100, "dur": 100}'
    path.write_text(f'{{"traceEvents": [{event}, {last}]}}')
    said = [n.reason for n in report_on([path]).not_checked]
    assert any("could not be read" in reason for reason in said)
    assert not any("in the middle" in reason or "no valid JSON" in reason for reason in said)


def test_what_unpacks_to_far_more_than_a_trace_is_refused_at_once(tmp_path: Path) -> None:
    """Events that are valid and alike: 230 to 300 times as large unpacked."""
    event = b'{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 100, "dur": 100},\n'
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + event * (1 << 20), 9))
    with pytest.raises(BadInput, match=r"gunzip"):
        report_on([path])


def test_a_long_trace_is_read_up_to_a_limit_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MOST", 100_000)
    monkeypatch.setattr(blocks, "BLOCK", 1 << 16)
    path = Program().train(60, step).write(tmp_path / "a.json.gz")
    report = report_on([path])
    said = {n.check: n.reason for n in report.not_checked}
    assert "was read to there" in said["the rest of the trace"] and "the end of the trace" not in said
