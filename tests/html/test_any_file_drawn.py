"""Whatever a snapshot or a trace holds that can be read: it is drawn, and its parts add up."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_export_any_file import EVENT, FIELDS, ODD, SEGMENT, TRACE

from torchvet.charts import Chart
from torchvet.drawing.snapshot import charts_of_snapshot
from torchvet.drawing.trace import charts_of_traces
from torchvet.errors import BadInput
from torchvet.finding import Report
from torchvet.readers.conversion import snapshot_of
from torchvet.renderers.html.figures import figures, section_of
from torchvet.snapshots.memory import SnapshotMemory
from torchvet.traces.digest import digest

NONE = Report(subject={"kind": "snapshot"}, verdict="clean")


def shown(charts: list[Chart]) -> None:
    """Every chart has words, and its numbers can be drawn."""
    for chart in charts:
        assert chart.caption.endswith(".") and chart.columns
        numbers = [y for s in chart.series for y in (*s.x, *s.y) if y is not None]
        numbers += [n for box in chart.boxes for n in (box.start, box.size)] + [node.value for node in chart.nodes]
        assert all(map(math.isfinite, numbers))
        assert all(box.size >= 0 and box.start >= 0 for box in chart.boxes)
    for figure in figures(charts, NONE):
        assert section_of(figure).startswith("<section")


STEP = [{"filename": "/site-packages/torch/optim/adamw.py", "line": 1, "name": "step"}]
NO_BYTES = [
    {"action": "alloc", "addr": 0, "size": 0, "frames": [], "time_us": "x"},
    {"action": "free_completed", "addr": 1, "size": 1, "frames": STEP, "time_us": "x"},
    {"action": "oom", "addr": 5, "size": 0, "frames": STEP, "time_us": None},
]


@settings(max_examples=120)
@example([], NO_BYTES, [])
@given(st.lists(EVENT, max_size=30), st.lists(EVENT, max_size=5), st.lists(SEGMENT, max_size=3))
def test_any_events_are_drawn(first: list[Any], second: list[Any], segments: list[Any]) -> None:
    raw = {"segments": segments, "device_traces": [first, second]}
    try:
        memory = SnapshotMemory(snapshot_of(raw, "any.pickle", 10**9, times=True))
    except BadInput:
        return
    faults: list[str] = []
    charts = charts_of_snapshot(memory, None, faults)
    assert faults == []
    shown(charts)
    for chart in charts:
        if chart.kind == "icicle":
            inside = [n.value for n in chart.nodes if n.parent == 0]
            assert math.isclose(sum(inside), chart.nodes[0].value)


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(TRACE.events) - 1), FIELDS, ODD), max_size=4))
@example([(8, "dur", 612)])  # the steps that are left last no time
def test_any_trace_that_is_read_is_drawn(tmp_path: Path, changes: list[Any]) -> None:
    found = [dict(event) for event in TRACE.events]
    for number, field, value in changes:
        found[number][field] = value
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({**TRACE.header, "traceEvents": found}))
    try:
        rank = digest(path)
    except BadInput:
        return
    faults: list[str] = []
    shown(charts_of_traces([rank], NONE, faults))
    shown(charts_of_traces([rank, rank], NONE, faults))
    assert faults == []
