"""Whatever a snapshot or a trace holds that can be read: every form is well formed, and says what the blocks say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from exporting_by_hand import chrome, rows, speedscope
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_building import Program

from torchvet.errors import BadInput
from torchvet.readers.conversion import snapshot_of
from torchvet.readers.snapshot import ACTIONS
from torchvet.snapshots.memory import SnapshotMemory
from torchvet.snapshots.timeline import by_category
from torchvet.traces.digest import digest

FRAMES = [
    [],
    [{"filename": "a.py", "line": 3, "name": "f"}, {"filename": "b.py", "line": 4, "name": "main"}],
    [{"filename": "x.cpp", "line": 0, "name": "at::_ops::mm::call(at::Tensor)"}],
    [{"filename": "/site-packages/torch/optim/adamw.py", "line": 1, "name": "step"}],
]
SIZES = st.integers(0, 5) | st.sampled_from([512, 1 << 20, 1 << 40, 2**62])
EVENT = st.fixed_dictionaries({
    "action": st.sampled_from(["alloc", "alloc", "free_completed", "free_requested", *ACTIONS]),
    "addr": st.integers(0, 6), "size": SIZES, "frames": st.sampled_from(FRAMES),
    "time_us": st.integers(0, 100) | st.none() | st.just("x"),
})  # fmt: skip
BLOCK = st.fixed_dictionaries({
    "address": st.integers(0, 6), "size": SIZES, "requested_size": SIZES, "frames": st.sampled_from(FRAMES),
    "state": st.sampled_from(["active_allocated", "inactive", "active_pending_free"]),
})  # fmt: skip
SEGMENT = st.fixed_dictionaries({
    "device": st.integers(0, 1), "address": st.integers(0, 6), "total_size": SIZES,
    "blocks": st.lists(BLOCK, max_size=4),
})  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENT, max_size=30), st.lists(EVENT, max_size=5), st.lists(SEGMENT, max_size=3))
def test_any_events_make_every_form(first: list[Any], second: list[Any], segments: list[Any]) -> None:
    raw = {"segments": segments, "device_traces": [first, second]}
    try:
        memory = SnapshotMemory(snapshot_of(raw, "any.pickle", 10**9, times=True))
    except BadInput as refused:
        assert "add up to more bytes" in str(refused)
        return
    peaks = [device.peak.bytes for device in memory.devices]
    in_use = [p["endValue"] for p in speedscope(memory)["profiles"] if "at the peak" in p["name"]]
    assert in_use == peaks
    for ending in (".csv", ".jsonl"):
        table = [r for r in rows(ending, memory) if r.get("table", "blocks") == "blocks"]
        assert sum(int(r["requested_bytes"]) for r in table) == sum(peaks)
    chrome(memory)
    for device in memory.devices:
        for at, held, _ in by_category(device):
            assert sum(held.values()) == device.moment(at).bytes and min(held.values(), default=0) >= 0


def small(program: Program) -> None:
    program.load(100)
    program.op(30)
    with program.backward():
        program.op(30)
    program.copy("HtoD", 60, 100_000)
    program.item()


TRACE = Program().train(3, small)
ODD = st.one_of(
    st.none(), st.booleans(), st.floats(), st.integers(-(2**70), 2**70), st.text(max_size=12),
    st.sampled_from(["ProfilerStep#9", "1e400", 1e308, -1, "kernel", "\ud800", "stream 7"]),
)  # fmt: skip
FIELDS = st.sampled_from(["ph", "cat", "name", "pid", "tid", "ts", "dur"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(TRACE.events) - 1), FIELDS, ODD), max_size=4), ODD)
def test_any_trace_that_is_read_makes_every_form(tmp_path: Path, changes: list[Any], base: Any) -> None:
    found = [dict(event) for event in TRACE.events]
    for number, field, value in changes:
        found[number][field] = value
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({**TRACE.header, "baseTimeNanoseconds": base, "traceEvents": found}))
    try:
        rank = digest(path)
    except BadInput:
        return
    speedscope(rank)
    chrome(rank)
    rows(".csv", rank)
    rows(".jsonl", rank)
