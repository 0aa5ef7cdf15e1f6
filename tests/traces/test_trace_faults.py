"""Faults planted in known amounts are found with the amount; programs that look like them are left alone.

The amount is the difference to the same simulated program without the fault.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from trace_building import Program, step

from torchvet.finding import Finding, Report
from torchvet.traces import report_on
from torchvet.traces.elements import OWN

STEPS = 6
Body = Callable[[Program], None]


def looked_at(tmp_path: Path, body: Body, steps: int = STEPS, version: str = "2.13") -> tuple[Report, float]:
    """The report on a program, and its seconds per step."""
    program = Program().train(steps, body)
    return report_on([program.write(tmp_path / "trace.json", version)]), program.seconds / steps


def loud(report: Report) -> list[str]:
    return [f.code for f in report.findings if f.severity != "info"]


def the(report: Report, code: str) -> Finding:
    found = [f for f in report.findings if f.code == code]
    assert len(found) == 1, [(f.code, f.message) for f in report.findings]
    return found[0]


def logs(program: Program) -> None:
    step(program)
    with program.function("train.py(12): log_loss"):
        program.item()
        program.python(4_000)


def loads(program: Program) -> None:
    program.load(30_000)
    step(program)
    program.item()


def loads_and_sends(program: Program) -> None:
    with program.function("train.py(40): fetch"):
        program.copy("HtoD", 6_000, 100_000_000)
    step(program)


def launches(program: Program) -> None:
    for _ in range(300):
        program.op(5, 25)
    with program.annotated("Optimizer.step#Adam.step"):
        for _ in range(900):
            program.op(4, 25, "aten::addcmul_", "vectorized_elementwise_kernel")


def collects(program: Program) -> None:
    step(program)
    program.item()
    start = program.host
    program.python(12_000)
    program.span("python_function", "Python GC", start, program.host)


def compiles(program: Program) -> None:
    program.item()
    start = program.host
    program.python(50_000)
    program.span("user_annotation", "_compile.compile_inner (dynamo_timed)", start, program.host)
    step(program)


def converts(program: Program) -> None:
    step(program)
    for _ in range(10):
        program.op(800, 30, "aten::convolution", "void nchwToNhwcKernel<float, float>(int)")


def goes_and_comes(program: Program) -> None:
    step(program)
    with program.function("train.py(50): on_host"):
        program.copy("DtoH", 2_000, 20_000_000)
        program.python(1_000)
        program.copy("HtoD", 2_000, 20_000_000)


def waits_at_the_end(program: Program) -> None:
    """`loss.item()` at the end of a step: the host waits long, the device idles for a moment."""
    step(program)
    program.item()


def waits_first(program: Program) -> None:
    program.item()
    step(program)


def loads_quickly(program: Program) -> None:
    program.load(20)
    step(program)
    program.item()


PLANTED: list[tuple[str, Body, Body]] = [
    ("OPS101", logs, step),
    ("OPS301", loads, loads_quickly),
    ("OPS104", loads_and_sends, step),
    ("OPS302", collects, waits_at_the_end),
    ("OPS303", compiles, waits_first),
    ("OPS201", converts, step),
    ("OPS102", goes_and_comes, step),
]


@pytest.mark.parametrize(("code", "faulty", "healthy"), PLANTED, ids=[p[0] for p in PLANTED])
def test_a_planted_fault_is_found_with_its_amount(tmp_path: Path, code: str, faulty: Body, healthy: Body) -> None:
    report, seconds = looked_at(tmp_path, faulty)
    silent, rest = looked_at(tmp_path, healthy)
    finding = the(report, code)
    assert finding.measured.seconds_per_step == pytest.approx(seconds - rest, rel=0.10)
    assert finding.severity == ("warning" if (seconds - rest) / seconds > 0.10 else "info")
    assert report.facts["step"]["seconds"] == pytest.approx(seconds, rel=0.01)
    assert code not in [f.code for f in silent.findings]
    assert loud(silent) == []


def test_many_small_kernels_are_found_with_the_time_that_the_device_waits(tmp_path: Path) -> None:
    report, seconds = looked_at(tmp_path, launches)
    finding = the(report, "OPS206")
    kernels = (300 * 5 + 900 * 4) / 1e6
    recording = 1.7e-6 * 1200
    assert finding.measured.seconds_per_step == pytest.approx(seconds - kernels - recording, rel=0.10)
    assert finding.severity == "warning"
    assert "optimizer" in finding.message and "fused" in finding.remedy.summary


def test_a_profile_that_slowed_the_host_down_does_not_accuse_it(tmp_path: Path) -> None:
    path = Program().train(STEPS, launches).write(tmp_path / "trace.json", with_stack=1)
    finding = the(report_on([path]), "OPS206")
    assert finding.severity == "info" and "with_stack" in finding.cause


@pytest.mark.parametrize("code", ["OPS101", "OPS104", "OPS102"])
def test_the_function_is_named_and_said_to_be_no_line(tmp_path: Path, code: str) -> None:
    body = {"OPS101": logs, "OPS104": loads_and_sends, "OPS102": goes_and_comes}[code]
    finding = the(looked_at(tmp_path, body)[0], code)
    assert finding.location is not None and finding.location.path == "train.py"
    assert finding.location.function in ("log_loss", "fetch", "on_host")
    assert "not the line" in finding.cause


def many_cheap_waits(program: Program) -> None:
    """The device has long work queued on another stream's account: waiting costs nothing."""
    for _ in range(60):
        program.call("cudaStreamSynchronize", 3)
    step(program)


def loader_behind_the_queue(program: Program) -> None:
    """15 ms of waiting for data, all of it while the device works off its queue."""
    step(program)
    program.load(15_000)


def pinned(program: Program) -> None:
    program.copy("HtoD", 200, 2_000_000, pageable=False)
    step(program)


def checkpoint_once(program: Program) -> None:
    """A copy to the host and one to the device, of other sizes."""
    step(program)
    program.copy("DtoH", 100, 1_000_000)
    program.copy("HtoD", 100, 2_000_000)


ALIKE = [many_cheap_waits, loader_behind_the_queue, waits_at_the_end, pinned, checkpoint_once]


@pytest.mark.parametrize("body", ALIKE, ids=lambda b: b.__name__)
def test_what_only_looks_like_a_fault_is_left_alone(tmp_path: Path, body: Body) -> None:
    report, _ = looked_at(tmp_path, body)
    assert loud(report) == [], [(f.code, f.message) for f in report.findings]


def test_the_profilers_own_wait_at_its_end_is_left_out(tmp_path: Path) -> None:
    report, seconds = looked_at(tmp_path, step)
    assert report.findings == [] and report.verdict == "clean"
    assert report.facts["step"]["seconds"] == pytest.approx(seconds, rel=0.01)
    assert report.facts["gpu"]["busy_share"] > 0.99


@pytest.mark.parametrize("version", ["2021", "amd", "mtia"])
def test_other_versions_and_devices_tell_the_same(tmp_path: Path, version: str) -> None:
    today, _ = looked_at(tmp_path, loads)
    other, _ = looked_at(tmp_path, loads, version=version)
    assert [f.code for f in other.findings] == [f.code for f in today.findings]
    assert other.facts["gpu"]["idle"] == pytest.approx(today.facts["gpu"]["idle"])
    waits, _ = looked_at(tmp_path, logs, version=version)
    assert "OPS101" in [f.code for f in waits.findings]


def test_the_parts_of_a_step_make_the_whole(tmp_path: Path) -> None:
    for body in (logs, loads, launches, goes_and_comes, compiles):
        gpu = (report := looked_at(tmp_path, body)[0]).facts["gpu"]
        parts = gpu["compute"] + gpu["communication"] + gpu["copies"] + sum(gpu["idle"].values())
        assert parts == pytest.approx(report.facts["step"]["seconds"], rel=0.001)
        assert sum(report.facts["phases"].values()) == pytest.approx(1.0)


def test_a_file_that_ends_in_the_middle_accuses_nobody(tmp_path: Path) -> None:
    """The host's events come first in it: the steps are there, and most of their kernels are not."""
    program = Program().train(STEPS, step)
    program.events.sort(key=lambda e: e["cat"] == "kernel")
    whole = program.json()
    path = tmp_path / "trace.json"
    path.write_text(whole)
    assert not report_on([path]).findings
    kernels = whole.index('"kernel"')
    path.write_text(whole[: kernels + (len(whole) - kernels) // 10])
    report = report_on([path])
    assert report.facts["steps"] == STEPS and not report.findings
    assert "why the device was idle" in [n.check for n in report.not_checked]


def host_step(
    program: Program, reads: int = 0, between: str = "", frames: bool = True, made: str = "aten::item"
) -> None:
    """A step of the host alone, 12 ms, with so many elements read in 12 us, after each an operator of a name."""
    with program.function("train.py(30): count") if frames else nullcontext():
        for _ in range(reads):
            for name in ("aten::select", made, *([between] if between else [])):
                program.span("cpu_op", name, program.host, program.host + 5)
                program.python(6)
    for name in ("aten::linear", "aten::relu", "aten::mse_loss"):
        program.span("cpu_op", name, program.host, program.host + 4_000)
        program.python(4_001)


def test_a_loop_over_elements_without_a_device(tmp_path: Path) -> None:
    found = the(looked_at(tmp_path, lambda p: host_step(p, 500))[0], "OPS205")
    assert found.location is not None and found.location.function == "count"
    assert found.measured.seconds_per_step == pytest.approx(OWN * 500 * 12e-6, rel=0.01)
    assert "500 elements a step" in found.message and "with_stack" in found.cause and found.severity == "info"
    found = the(looked_at(tmp_path, lambda p: host_step(p, 1500, frames=False))[0], "OPS205")
    assert found.severity == "warning" and found.location is None


@pytest.mark.parametrize(
    ("reads", "between", "made"), [(30, "", ""), (500, "aten::mul", ""), (500, "", "aten::select")]
)
def test_few_reads_recurrences_and_rows_are_no_loop_over_elements(
    tmp_path: Path, reads: int, between: str, made: str
) -> None:
    report, _ = looked_at(tmp_path, lambda p: host_step(p, reads, between, made=made or "aten::item"))
    assert "OPS205" not in [f.code for f in report.findings]
