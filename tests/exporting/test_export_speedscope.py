"""Flame graphs: the weights add up to what was measured, and the file is what speedscope reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from exporting_by_hand import REAL, memory_of, real, speedscope
from making_snapshots import BACKWARD, KB, MB, Recorder, Training, frame
from trace_building import Program, step

from torchvet.readers.trace_facts import Cost, RankTrace, Where
from torchvet.traces.digest import digest


@pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)
def test_the_weights_add_up_to_a_real_peak(path: Path) -> None:
    memory = real(path)
    profile = speedscope(memory)["profiles"][0]
    assert profile["unit"] == "bytes" and profile["endValue"] == memory.devices[0].peak.bytes
    assert profile["weights"] == sorted(profile["weights"], reverse=True)


def test_stacks_begin_with_the_outermost_frame_and_name_lines() -> None:
    found = speedscope(real(REAL[0]))
    frames, samples = found["shared"]["frames"], found["profiles"][0]["samples"]
    assert frames[samples[0][0]]["name"] == "<module> (benchmarking_script.py:65)"
    assert frames[samples[0][0]]["file"].endswith("benchmarking_script.py") and frames[samples[0][0]]["line"] == 65


def test_what_a_step_leaves_behind_is_a_second_profile() -> None:
    recorder = Recorder()
    training = Training(recorder)
    for _ in range(14):
        training.step(leak=3 * MB)
    found = speedscope(memory_of(recorder))
    peak, left = found["profiles"]
    assert peak["name"].endswith("in use at the peak") and "left behind by a step" in left["name"]
    assert left["unit"] == "bytes" and left["endValue"] == pytest.approx(3 * MB)
    names = [found["shared"]["frames"][n]["name"] for n in left["samples"][0]]
    assert names == ["main (train.py:90)", "train_step (train.py:84)", "log_outputs (train.py:61)"]


def test_a_healthy_program_has_no_second_profile() -> None:
    recorder = Recorder()
    training = Training(recorder)
    for _ in range(14):
        training.step()
    assert len(speedscope(memory_of(recorder))["profiles"]) == 1


def test_blocks_without_frames_are_under_their_category() -> None:
    recorder = Recorder()
    recorder.alloc(4 * MB, [frame("train.py", 3, "main")])
    recorder.alloc(MB, BACKWARD)
    found = speedscope(memory_of(recorder))
    roots = {found["shared"]["frames"][s[0]]["name"]: w for s, w in
             zip(found["profiles"][0]["samples"], found["profiles"][0]["weights"], strict=True)}  # fmt: skip
    assert roots.pop("main (train.py:3)") == 4 * MB
    ((root, weight),) = roots.items()
    assert root.endswith("(no Python frames)") and weight == MB


def test_one_profile_a_device_and_file_and_frames_are_shared() -> None:
    recorder = Recorder()
    recorder.alloc(MB, [frame("train.py", 3, "main")])
    once = speedscope(memory_of(recorder))
    twice = speedscope(memory_of(recorder), memory_of(recorder))
    assert len(twice["profiles"]) == 2 * len(once["profiles"])
    assert twice["shared"] == once["shared"]


def test_nothing_in_use_is_still_a_file() -> None:
    assert speedscope(memory_of(Recorder()))["profiles"][0]["weights"] == []


def test_sizes_that_no_allocator_writes_are_left_out() -> None:
    recorder = Recorder()
    recorder.alloc(64 * KB, [frame("a.py", 1, "f")])
    recorder.alloc(64 * KB, [frame("a.py", 2, "f")])
    recorder.events[-1]["size"] = -5
    assert speedscope(memory_of(recorder))["profiles"][0]["weights"] == [64 * KB]


def test_a_trace_is_seconds_by_phase_activity_and_cost(tmp_path: Path) -> None:
    def body(program: Program) -> None:
        program.load(30_000)
        step(program)
        program.item()

    rank = digest(Program().train(4, body).write(tmp_path / "trace.json"))
    host, device, costs = speedscope(rank)["profiles"]
    assert rank.steps is not None and rank.gpu is not None and {p["unit"] for p in (host, device, costs)} == {"seconds"}
    assert host["endValue"] == pytest.approx(sum(rank.phases.values()))
    gpu = rank.gpu
    assert device["endValue"] == pytest.approx(gpu.compute + gpu.communication + gpu.copies + sum(gpu.idle.values()))
    assert rank.loader is not None and max(costs["weights"]) == rank.loader.seconds


def test_a_cost_is_under_its_phase_and_above_its_function() -> None:
    rank = RankTrace(path="a.json", rank=3)
    rank.syncs = [Cost("cudaStreamSynchronize", seconds=0.25, phase="forward", where=Where("train", "train.py", 7))]
    rank.transfers = [Cost("pageable host-to-device", seconds=0.0), Cost("pinned", seconds=float("nan"))]
    found = speedscope(rank)
    profile = found["profiles"][-1]
    assert profile["name"].startswith("rank 3: ") and profile["weights"] == [0.25]
    names = [found["shared"]["frames"][n]["name"] for n in profile["samples"][0]]
    assert names == ["forward", "cudaStreamSynchronize", "train"]
