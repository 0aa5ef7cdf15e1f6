"""Real traces: those recorded by torch 2.13 beside these tests, and the published ones where they are at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchvet.finding import Report
from torchvet.traces import looks_like, report_on

HERE = Path(__file__).parent.parent
RECORDED = HERE / "data" / "traces"
PUBLISHED = next(
    (p for n in range(1, 4) if (p := HERE.parents[n] / "shared" / "data" / "traces").is_dir()), Path("nowhere")
)
"""Large files of other people, kept beside the repository; see the README there."""
published = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published traces are not beside the repository")

MEASURED = json.loads((RECORDED / "measured.json").read_text("utf-8"))
HEALTHY = ["a100_8ranks_healthy", "resnet_v100_healthy", "ddp_v100_2ranks_memory", "resnet50_workers4"]
BUSY = {"ddp_v100_2ranks_memory": 57.6, "a100_8ranks_healthy": 83.5, "resnet_v100_healthy": 97.7}
"""The union of the kernels and copies over the steps' time, counted from the files by hand."""


def of(name: str) -> Report:
    return report_on([PUBLISHED / f"{name}.json.gz"])


def loud(report: Report) -> list[str]:
    return [f.code for f in report.findings if f.severity != "info"]


@pytest.mark.parametrize(
    ("name", "code", "near"),
    # Of a compilation the trace shows what dynamo times itself: without the first look at the bytecode.
    [("cpu_input_bound", "OPS301", 0.05), ("cpu_collector", "OPS302", 0.05), ("cpu_recompiles", "OPS303", 0.15)],
)
def test_what_a_program_measured_itself_is_found_in_its_trace(name: str, code: str, near: float) -> None:
    report = report_on([RECORDED / f"{name}.json.gz"])
    assert loud(report) == [code]
    assert report.findings[0].measured.seconds_per_step == pytest.approx(MEASURED[name]["fault"], rel=near)
    assert report.facts["step"]["found_by"] == "ProfilerStep"


def test_the_collecting_function_is_named() -> None:
    location = report_on([RECORDED / "cpu_collector.json.gz"]).findings[0].location
    assert location is not None
    assert (location.path, location.function) == ("record.py", "collect_garbage")


def test_the_rank_that_sleeps_is_the_straggler_under_gloo_too() -> None:
    report = report_on([RECORDED / f"gloo_rank{n}.json.gz" for n in (1, 0)], jobs=1)
    assert loud(report) == ["DST103"]
    assert report.findings[0].rank == 1
    assert report.findings[0].measured.seconds_per_step == pytest.approx(0.030, rel=0.10)
    alone = [report_on([RECORDED / f"gloo_rank{n}.json.gz"]) for n in (0, 1)]
    assert [loud(r) for r in alone] == [[], []]


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.gz")), ids=lambda p: p.name)
def test_recorded_traces_look_like_traces(path: Path) -> None:
    with path.open("rb") as file:
        assert looks_like(file.read(4096))


@published
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_traces_are_left_alone(name: str) -> None:
    report = of(name)
    assert loud(report) == [], [(f.code, f.message) for f in report.findings]
    assert report.not_checked == []


@published
@pytest.mark.parametrize(("name", "percent"), BUSY.items())
def test_how_busy_the_device_was(name: str, percent: float) -> None:
    assert of(name).facts["gpu"]["busy_share"] * 100 == pytest.approx(percent, abs=0.05)


@published
def test_a_loader_without_workers_is_found_and_with_workers_it_is_not() -> None:
    without, with_workers = of("resnet50_workers0"), of("resnet50_workers4")
    found = next(f for f in without.findings if f.code == "OPS301")
    assert found.severity == "warning"
    assert found.measured.share is not None and 0.30 <= found.measured.share <= 0.40
    assert found.location is not None and found.location.path == "resnet50_profiler_api.py"
    assert "OPS301" not in [f.code for f in with_workers.findings]


@published
def test_sixty_waits_that_cost_nothing_are_no_finding() -> None:
    report = of("a100_8ranks_healthy")
    assert "OPS101" not in [f.code for f in report.findings]
    assert sum(report.facts["gpu"]["idle"].values()) < 0.17 * report.facts["step"]["seconds"]


@published
def test_the_profilers_wait_at_its_end_is_no_synchronisation() -> None:
    report = of("resnet_v100_healthy")
    assert "OPS101" not in [f.code for f in report.findings]
    assert report.facts["gpu"]["idle"].get("synchronisation", 0.0) == 0.0
