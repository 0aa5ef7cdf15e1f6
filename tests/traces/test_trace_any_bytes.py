"""Whatever bytes a file holds: a report or a `BadInput`, never another error."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_building import Program, ranks

from torchvet.errors import BadInput
from torchvet.finding import Report
from torchvet.renderers import renderer_for
from torchvet.traces import looks_like, report_on

EXAMPLES = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def small(program: Program) -> None:
    program.load(100)
    program.op(30)
    with program.backward():
        program.op(30)
    program.copy("HtoD", 60, 100_000)
    program.item()
    program.copy("DtoH", 60, 100_000)


TRACE = Program().train(2, small).json().encode()
HOSTILE: Any = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=True), st.text(max_size=20),
    st.lists(st.integers(), max_size=3), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sampled_from(["stream 7", "1e400", -1, 0, 1e308, "kernel", "X", ""]),
)  # fmt: skip
FIELDS = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]
ARGUMENTS = ["correlation", "External id", "stream", "device", "bytes", "Call stack", "Input Dims", "Total Allocated"]


def judged(path: Path, data: bytes) -> Report | None:
    """The report, which every renderer can show; None where the file was refused with its name."""
    path.write_bytes(data)
    looks_like(data[:4096])
    try:
        report = report_on([path])
    except BadInput as error:
        assert path.name in str(error)
        return None
    for name in ("text", "json", "sarif", "github", "markdown"):
        assert renderer_for(name).render(report)
    return report


@EXAMPLES
@given(data=st.binary(max_size=400))
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    judged(tmp_path / "a.json", data)
    judged(tmp_path / "a.json", b'{"traceEvents": [' + data)
    judged(tmp_path / "a.json", gzip.compress(data)[: len(data)])


@EXAMPLES
@given(cut=st.integers(0, len(TRACE)), at=st.integers(0, len(TRACE) - 1), new=st.binary(max_size=8))
def test_a_trace_that_is_cut_and_changed(tmp_path: Path, cut: int, at: int, new: bytes) -> None:
    judged(tmp_path / "a.json", TRACE[:cut])
    judged(tmp_path / "a.json", TRACE[:at] + new + TRACE[at + len(new) :])


@EXAMPLES
@given(
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(FIELDS), HOSTILE), min_size=1, max_size=6),
    arguments=st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(ARGUMENTS), HOSTILE), max_size=6),
)
def test_events_with_any_values(
    tmp_path: Path, changes: list[tuple[int, str, Any]], arguments: list[tuple[int, str, Any]]
) -> None:
    events = json.loads(TRACE)["traceEvents"]
    for number, name, value in changes:
        events[number % len(events)][name] = value
    for number, name, value in arguments:
        args = events[number % len(events)].get("args")
        if isinstance(args, dict):
            args[name] = value
    report = judged(tmp_path / "a.json", json.dumps({"traceEvents": events}).encode())
    assert report is not None


def test_ranks_of_other_shapes_do_not_disturb_each_other(tmp_path: Path) -> None:
    paths = [p.write(tmp_path / f"rank{p.rank}.json") for p in ranks(3, 3)]
    paths[1].write_bytes(TRACE[: len(TRACE) // 2])
    assert report_on(paths, jobs=1).facts["ranks"]


@pytest.mark.parametrize("shift", [-50_000.0, 1e15])
def test_clocks_that_disagree_are_said_and_not_judged(tmp_path: Path, shift: float) -> None:
    program = Program().train(4, lambda p: (p.item(), p.python(50_000), small(p))[0])
    for event in program.events:
        if event["pid"] == 0:
            event["ts"] += shift
    report = report_on([program.write(tmp_path / "a.json")])
    assert report.not_checked
    assert [f.code for f in report.findings if f.code in ("OPS101", "OPS206", "OPS301")] == []


@pytest.mark.parametrize(("field", "value"), [("dur", -5), ("ts", 1e308), ("dur", 1e308), ("ts", -1e300), ("dur", "x")])
def test_impossible_times_are_said(tmp_path: Path, field: str, value: Any) -> None:
    program = Program().train(2, small)
    program.events[3][field] = value
    report = judged(program.write(tmp_path / "a.json"), program.json().encode())
    assert report is not None
    assert any("1 events have impossible times" in n.reason for n in report.not_checked)
