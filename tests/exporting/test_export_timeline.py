"""Timelines: counters end where the blocks do, the peak is in them to the byte, times are the file's own."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from exporting_by_hand import DATA, REAL, chrome, events, memory_of, real
from making_snapshots import KEEPING, MB, OutOfMemory, Recorder, Training
from trace_building import Program, step

from torchvet.finding import Finding, Remedy
from torchvet.snapshots.memory import SnapshotMemory
from torchvet.snapshots.timeline import by_category
from torchvet.traces.digest import digest


def trained(steps: int = 5, leak: int = 0) -> Recorder:
    recorder = Recorder()
    training = Training(recorder)
    for _ in range(steps):
        training.step(leak=leak)
    return recorder


def values(found: dict[str, Any], name: str = "bytes in use") -> list[int]:
    return [e["args"]["bytes"] for e in events(found, "C", name)]


@pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)
def test_a_real_peak_is_in_the_counter_to_the_byte(path: Path) -> None:
    memory = real(path)
    found, peak = chrome(memory), memory.devices[0].peak
    assert max(values(found)) == peak.bytes
    (mark,) = events(found, "i", "peak")
    assert mark["args"]["bytes"] == peak.bytes
    parts = [e["args"] for e in events(found, "C", "bytes by category") if e["ts"] == mark["ts"]]
    assert peak.by_category in [{k: v for k, v in p.items() if v} for p in parts]
    assert values(found)[-1] == memory.devices[0].end.bytes
    assert values(found, "bytes reserved")[-1] == memory.devices[0].reserved


@pytest.mark.parametrize("points", [10_000, 40, 7])
def test_counters_agree_with_the_blocks_however_few_they_are(points: int) -> None:
    device = memory_of(trained(leak=MB)).devices[0]
    seen = [(at, sum(held.values()), reserved) for at, held, reserved in by_category(device, points)]
    assert len(seen) <= points + 3
    for at, held, reserved in seen:
        assert held == device.moment(at).bytes and reserved == device.reserved_at(at)
    assert max(held for _, held, _ in seen) == device.lifetimes.peak


def test_frees_that_were_not_recorded_do_not_pile_up() -> None:
    recorder = trained()
    kept = [e for n, e in enumerate(recorder.events) if e["action"] != "free_completed" or n % 5]
    recorder.events[:] = kept
    device = memory_of(recorder).devices[0]
    assert all(sum(held.values()) == device.moment(at).bytes for at, held, _ in by_category(device))


def test_steps_phases_and_failures_are_shown() -> None:
    recorder = Recorder(capacity=600 * MB)
    training = Training(recorder)
    for _ in range(3):
        training.step()
    with pytest.raises(OutOfMemory):
        recorder.alloc(900 * MB, KEEPING)
    found = chrome(memory_of(recorder))
    assert [e["name"] for e in events(found, "X", "step")] == ["step 0", "step 1", "step 2"]
    assert {"forward", "backward", "optimizer"} <= {e["name"] for e in events(found, "X", thread=2)}
    (failure,) = events(found, "i", "out of memory")
    assert failure["args"]["requested"] == 900 * MB and failure["args"]["driver_free"] >= 0
    first, last = recorder.events[0]["time_us"], recorder.events[-1]["time_us"]
    assert all(first - 1 <= e["ts"] <= last for e in found["traceEvents"] if e["ph"] != "M")
    steps = events(found, "X", "step")
    assert all(a["ts"] + a["dur"] == b["ts"] for a, b in pairwise(steps))


def test_without_times_the_number_of_the_event_is_one_and_the_file_says_so() -> None:
    recorder = trained(3)
    for event in recorder.events:
        del event["time_us"]
    recorder.annotations.clear()
    found = chrome(memory_of(recorder))
    assert "number of the event" in str(found["otherData"])
    (mark,) = events(found, "i", "peak")
    assert mark["ts"] == mark["args"]["event"]
    assert "number of the event" not in str(chrome(memory_of(trained(3)))["otherData"])


def test_a_time_that_falls_back_does_not_turn_slices_round() -> None:
    recorder = trained(3)
    recorder.events[40]["time_us"] -= 10_000
    counters = events(chrome(memory_of(recorder)), "C", "bytes in use")
    assert all(a["ts"] <= b["ts"] for a, b in pairwise(counters))


def test_a_snapshot_without_history_has_its_state() -> None:
    recorder = trained(2)
    recorder.events.clear()
    memory = memory_of(recorder)
    assert values(chrome(memory)) == [memory.devices[0].peak.bytes]


def test_two_devices_and_two_files_are_processes_of_their_own() -> None:
    memory = memory_of(trained(2))
    processes = {e["pid"] for e in events(chrome(memory, memory), "M", "process_name")}
    assert len(processes) == 2


def test_times_are_read_only_when_they_are_asked_for() -> None:
    assert len(real(REAL[1]).snapshot.traces[0].times) == len(real(REAL[1]).snapshot.traces[0])
    from torchvet.readers.isolated import read_snapshot

    plain = SnapshotMemory(read_snapshot(REAL[1])).snapshot.traces[0]
    assert len(plain.times) == 0 and plain.microseconds > 0


def loads(program: Program) -> None:
    program.load(30_000)
    step(program)
    program.item()


def found_in(rank: int | None = None) -> Finding:
    return Finding(code="OPS301", name="x", severity="warning", evidence="observed", message="the loader takes long",
                   location=None, cause="c", remedy=Remedy(summary="r"), rank=rank)  # fmt: skip


def test_a_trace_keeps_its_own_times(tmp_path: Path) -> None:
    program = Program().train(4, loads)
    rank = digest(program.write(tmp_path / "trace.json", baseTimeNanoseconds=1_790_857_026_000_000_000))
    found = chrome(rank, findings=[found_in()])
    marked = [e for e in program.events if e["name"].startswith("ProfilerStep#")]
    shown = events(found, "X", "step")
    assert [(e["ts"], e["dur"]) for e in shown] == [(e["ts"], pytest.approx(e["dur"])) for e in marked]
    assert found["baseTimeNanoseconds"] == 1_790_857_026_000_000_000
    assert {"data", "forward", "backward"} <= {e["name"] for e in events(found, "X", thread=2)}
    (finding,) = events(found, "X", "OPS301 warning: the loader")
    assert finding["ts"] == shown[0]["ts"] and finding["args"]["remedy"] == "r"
    assert not {e["pid"] for e in found["traceEvents"]} & {e["pid"] for e in program.events}


def test_idle_time_adds_up_to_the_digests_reasons(tmp_path: Path) -> None:
    rank = digest(Program().train(4, loads).write(tmp_path / "trace.json"))
    assert rank.gpu is not None
    sums: dict[str, float] = {}
    for event in events(chrome(rank), "X", "idle"):
        reason = event["name"].removeprefix("idle: ")
        sums[reason] = sums.get(reason, 0.0) + event["dur"] / 4 / 1e6
    assert sums == pytest.approx({k: v for k, v in rank.gpu.idle.items() if v}, abs=1e-6)
    assert sums["input"] > 0.02


def test_a_finding_of_a_rank_is_in_its_process(tmp_path: Path) -> None:
    digests = [digest(Program(r, 2).train(3, loads).write(tmp_path / f"rank{r}.json")) for r in (0, 1)]
    found = chrome(*digests, findings=[found_in(1)])
    names = {e["args"]["name"]: e["pid"] for e in events(found, "M", "process_name")}
    assert [e["pid"] for e in events(found, "X", "OPS301")] == [names["torchvet: rank 1"]]


def test_real_traces_of_a_cpu_have_no_track_of_a_device() -> None:
    found = chrome(digest(DATA / "traces" / "cpu_input_bound.json.gz"))
    assert events(found, "X", "step") and not events(found, "X", "idle")
    assert not [e for e in events(found, "M", "thread_name") if "idle" in e["args"]["name"]]
