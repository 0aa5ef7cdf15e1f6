"""Every schema of a CUDA memory snapshot from torch 2.0 to 2.13."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from torchvet.errors import BadInput
from torchvet.readers.isolated import read_snapshot
from torchvet.readers.snapshot import ACTIONS, ALLOC, OOM, SEGMENT_MAP
from torchvet.readers.wire import from_bytes, to_bytes
from torchvet.snapshots.memory import SnapshotMemory

DATA = Path(__file__).resolve().parents[1] / "data"
FRAME = {"name": "train", "filename": "train.py", "line": 3}
BASE = 0x7F0000000000


def block(size: int, state: str = "active_allocated", **more: Any) -> dict[str, Any]:
    return {"size": size, "requested_size": size, "state": state, "frames": [FRAME], **more}


def segment(blocks: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"device": 0, "address": BASE, "total_size": sum(b["size"] for b in blocks), "stream": 0,
            "segment_type": "small", "blocks": blocks, **more}  # fmt: skip


def event(action: str, address: int, size: int, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "frames": [FRAME], "time_us": 5, **more}


def memory_of(told: Any, path: Path) -> SnapshotMemory:
    (path / "a.pickle").write_bytes(pickle.dumps(told))
    return SnapshotMemory(read_snapshot(path / "a.pickle"))


def test_torch_2_0_has_history_and_no_addresses(tmp_path: Path) -> None:
    old = {"size": 512, "state": "active_allocated", "history": [{"addr": BASE, "frames": [FRAME], "real_size": 300}]}
    told = {"segments": [segment([{"size": 1536, "state": "inactive"}, old])], "device_traces": []}
    device = memory_of(told, tmp_path).devices[0]
    second = device.segments[0].blocks[1]
    assert (second.address, second.requested) == (BASE + 1536, 300)
    assert device.end.bytes == 300 and device.end.lines[0].place is not None


def test_torch_2_1_has_no_times_and_some_traces_no_frames(tmp_path: Path) -> None:
    events = [event("alloc", BASE, 512), event("free_requested", BASE, 512), event("free_completed", BASE, 512)]
    for e in events:
        del e["time_us"]
    del events[0]["frames"]
    snapshot = memory_of({"segments": [], "device_traces": [events]}, tmp_path).snapshot
    assert snapshot.traces[0].microseconds == 0 and list(snapshot.traces[0].stacks) == [0, 0, 0]


def test_a_bare_list_is_the_state_alone(tmp_path: Path) -> None:
    device = memory_of([segment([block(512), block(1536, "inactive")])], tmp_path).devices[0]
    assert (device.reserved, device.end.bytes, device.peak.bytes) == (2048, 512, 512)


def test_several_devices_are_kept_apart(tmp_path: Path) -> None:
    traces = [[event("alloc", BASE, 512)], [], [event("alloc", BASE, 1024)]]
    told = {"segments": [segment([block(512, address=BASE)]), segment([block(1024, address=BASE)], device=2)],
            "device_traces": traces}  # fmt: skip
    assert [(d.device, d.peak.bytes) for d in memory_of(told, tmp_path).devices] == [(0, 512), (2, 1024)]


def test_a_trace_cut_at_the_front_has_frees_without_allocations(tmp_path: Path) -> None:
    events = [event("free_completed", BASE + 512, 4096), event("alloc", BASE + 512, 100)]
    told = {"segments": [segment([block(512, address=BASE)])], "device_traces": [events]}
    lifetimes = memory_of(told, tmp_path).devices[0].lifetimes
    assert (lifetimes.at_start, list(lifetimes.active), lifetimes.peak_at) == (4608, [512, 612], -1)


def test_an_empty_trace_and_an_empty_snapshot(tmp_path: Path) -> None:
    assert memory_of({"segments": [], "device_traces": [[], []]}, tmp_path).devices == []
    assert memory_of([], tmp_path).devices == []


def test_an_oom_has_what_the_driver_had_left(tmp_path: Path) -> None:
    failed = event("oom", 0, 4096)
    del failed["addr"]
    told = {"segments": [], "device_traces": [[event("alloc", BASE, 512), {**failed, "device_free": 777}]]}
    device = memory_of(told, tmp_path).devices[0]
    assert device.ooms == [1] and device.failure is not None
    assert (device.failure.requested, device.failure.driver_free) == (4096, 777)


def test_expandable_segments_and_unknown_actions(tmp_path: Path) -> None:
    events = [event("segment_map", BASE, 2048), event("alloc", BASE, 512), event("user_defined", BASE, 0),
              event("segment_unmap", BASE + 1024, 1024)]  # fmt: skip
    told = {"segments": [segment([block(512, address=BASE), block(512, "inactive")], is_expandable=True)],
            "device_traces": [events]}  # fmt: skip
    device = memory_of(told, tmp_path).devices[0]
    assert device.lifetimes.trace.actions[0] == SEGMENT_MAP
    assert ACTIONS[device.lifetimes.trace.actions[2]] == "other"
    assert [device.reserved_at(at) for at in range(-1, 4)] == [0, 2048, 2048, 2048, 1024]
    assert device.segments[0].split_free == 0


def test_both_names_of_a_pending_free(tmp_path: Path) -> None:
    told = [segment([block(512, "active_pending_free"), block(512, "active_awaiting_free")])]
    assert memory_of(told, tmp_path).devices[0].end.bytes == 1024


def test_compiled_code_names_the_models_line(tmp_path: Path) -> None:
    compiled = {
        "name": "call", "filename": "/tmp/torchinductor_me/ab/cab.py", "line": 88, "fx_node_name": "add",
        "fx_node_op": "call_function", "fx_original_trace": 'File "/home/me/model.py", line 41, in forward\n    x + y',
    }  # fmt: skip
    event_ = event("alloc", BASE, 512, frames=[compiled], compile_context="0/0", user_metadata="phase 1")
    place = memory_of({"segments": [], "device_traces": [[event_]]}, tmp_path).devices[0].stacks[1].place
    assert place is not None and (place.path, place.line, place.function) == ("/home/me/model.py", 41, "forward")


def test_annotations_stand_before_an_event(tmp_path: Path) -> None:
    events = [event("alloc", BASE + 512 * n, 512, time_us=10 * n) for n in range(5)]
    marks = [{"stage": "END", "name": "Optimizer.step#SGD.step", "device": 0, "time_us": 25}]
    told = {"segments": [], "device_traces": [events], "external_annotations": marks}
    assert [a.before for a in memory_of(told, tmp_path).snapshot.annotations] == [3]


def test_text_that_no_encoding_takes(tmp_path: Path) -> None:
    odd = {"name": "\ud800\x1b[31m", "filename": "tr\udcffain.py", "line": -5}
    told = {"segments": [], "device_traces": [[event("alloc", BASE, 512, frames=[odd, "no frame"][:1])]]}
    frame = memory_of(told, tmp_path).snapshot.frames[0]
    frame.name.encode(), frame.path.encode()
    assert frame.line == 0


def test_sizes_that_do_not_fit_into_64_bits_are_refused(tmp_path: Path) -> None:
    """Sums of bytes are kept in 64 bits."""
    events = [event("alloc", BASE, 2**61), event("alloc", BASE + 512, 2**61)]
    with pytest.raises(BadInput, match="more bytes than any program"):
        memory_of({"segments": [], "device_traces": [events]}, tmp_path)


@pytest.mark.parametrize("times", [False, True])
@pytest.mark.parametrize("name", ["magma.pickle", "silmont.pickle"])
def test_a_snapshot_survives_the_way_between_processes(name: str, times: bool) -> None:
    snapshot = read_snapshot(DATA / name, times)
    assert len(snapshot.traces[0].times) == (len(snapshot.traces[0]) if times else 0)
    assert from_bytes(to_bytes(snapshot)) == snapshot
    trace = snapshot.traces[0]
    assert trace.actions.count(ALLOC) > 0 and OOM not in trace.actions
