"""Leaks planted in recordings: found, the line right, the bytes exact; what does not grow stays silent."""

from __future__ import annotations

import pytest
from judging_snapshots import judge
from making_snapshots import KB, KEEPING, LOADING, MB, Recorder, Training, forward_stacks

from torchvet.snapshots.forecast import first_above


@pytest.mark.parametrize(("steps", "leak"), [(43, 123_456), (12, 1), (213, 5 * MB)])
def test_a_leak_is_told_to_the_byte(steps: int, leak: int) -> None:
    training = Training(Recorder())
    for _ in range(steps):
        training.step(leak=leak)
    memory, found = judge(training.recorder)
    leaking = found["MEM102"]
    assert memory.phases.told_by == "the optimizer's annotations"
    assert leaking.measured.bytes_per_step == leak and leaking.measured.bytes == leak * steps
    assert leaking.measured.tensors_per_step == 1
    assert leaking.location is not None and (leaking.location.path, leaking.location.line) == ("train.py", 61)
    assert leaking.severity == ("info" if leak == 1 else "error")
    assert memory.growth is not None and memory.growth.per_step == pytest.approx(leak)


def test_what_the_first_call_of_a_line_sets_up_is_no_part_of_its_leak() -> None:
    training = Training(Recorder())
    training.recorder.alloc(8 * MB, KEEPING)  # as cuBLAS does its workspace
    for _ in range(20):
        training.step(leak=100 * KB)
    measured = judge(training.recorder)[1]["MEM102"].measured
    assert (measured.bytes, measured.bytes_per_step) == (2000 * KB, 100 * KB)


def test_a_limit_gives_the_step_whose_peak_does_not_fit() -> None:
    """What is left at a step's end is not what it needs: the same program, run on, says which step is the first."""
    training, longer = Training(Recorder(), activations=200), Training(Recorder(), activations=200)
    for _ in range(20):
        training.step(leak=MB)
    limit = judge(training.recorder)[0].lifetimes.peak + 20 * MB
    memory, found = judge(training.recorder, limit)
    for _ in range(60):
        longer.step(leak=MB)
    truth, _ = judge(longer.recorder)
    first = first_above(truth, limit)
    assert first is not None and 20 < first < 59
    assert memory.lifetimes.peak > memory.end.bytes + 30 * MB
    assert found["MEM102"].measured.exhausted_at_step == first and "MEM304" not in found


def test_a_peak_above_the_limit_is_said_without_growth_too() -> None:
    training = Training(Recorder(), activations=200)
    for step in range(12):
        training.step(scale=1.5 if step >= 7 else 1.0)
    peak = judge(training.recorder)[0].lifetimes.peak
    memory, found = judge(training.recorder, peak - 10 * MB)
    assert [*found] == ["MEM304"] and found["MEM304"].severity == "error"
    assert found["MEM304"].measured.exhausted_at_step == 7
    assert found["MEM304"].measured.peak_bytes == memory.lifetimes.peak
    assert not judge(training.recorder, memory.lifetimes.peak)[1]


def test_growth_of_a_recording_that_is_above_the_limit_already_ends_in_a_recorded_step() -> None:
    training = Training(Recorder())
    for _ in range(30):
        training.step(leak=MB)
    limit = judge(training.recorder)[0].lifetimes.peak - 10 * MB - 1
    _, found = judge(training.recorder, limit)
    assert found["MEM102"].measured.exhausted_at_step == found["MEM304"].measured.exhausted_at_step == 19


@pytest.mark.parametrize("steps", [9, 60])
def test_healthy_training_is_silent(steps: int) -> None:
    training = Training(Recorder())
    for _ in range(steps):
        training.step()
    memory, found = judge(training.recorder)
    assert not found
    assert memory.growth is not None and memory.growth.per_step == 0 and not memory.growth.leaks


def test_a_window_and_a_cache_that_has_filled_are_no_leaks() -> None:
    training = Training(Recorder())
    window: list[int] = []
    for step in range(60):
        training.step()
        window.append(training.recorder.alloc(300 * KB, KEEPING))
        if len(window) > 10:
            training.recorder.free(window.pop(0))
        if step < 20:
            training.recorder.alloc(200 * KB, [*KEEPING[:1], *KEEPING])
    assert "MEM102" not in judge(training.recorder)[1]


def test_a_leak_on_a_line_that_also_frees_is_seen_by_its_amount() -> None:
    """The same stack allocates three blocks a step, of which one stays."""
    training = Training(Recorder())
    for _ in range(30):
        training.step()
        made = [training.recorder.alloc(100 * KB, KEEPING) for _ in range(3)]
        training.recorder.free(*made[:2])
    assert judge(training.recorder)[1]["MEM102"].measured.bytes_per_step == 100 * KB


def test_a_leak_of_every_third_step_is_a_rate() -> None:
    training = Training(Recorder())
    for step in range(64):
        training.step(leak=0 if step % 3 else 90 * KB)
    assert judge(training.recorder)[1]["MEM102"].measured.bytes_per_step == pytest.approx(30 * KB, rel=0.05)


def test_a_kept_graph_is_one_finding_about_all_of_its_lines() -> None:
    """Each step's evaluation leaves six activations behind, as a list of losses with their graphs does."""
    training = Training(Recorder())
    for _ in range(30):
        training.step()
        for n in range(6):
            training.recorder.alloc((n + 1) * 100 * KB, forward_stacks()[n])
    _, found = judge(training.recorder)
    assert set(found) == {"MEM101"}
    assert found["MEM101"].measured.bytes_per_step == 2100 * KB and found["MEM101"].measured.tensors_per_step == 6


def test_a_ring_buffer_that_lost_its_beginning() -> None:
    training = Training(Recorder())
    for _ in range(40):
        training.step(leak=777)
    del training.recorder.events[: len(training.recorder.events) // 2]
    memory, found = judge(training.recorder)
    assert found["MEM102"].measured.bytes_per_step == 777
    assert memory.end.bytes == training.recorder.allocator.requested


def test_steps_without_annotations() -> None:
    """From the optimizer's own allocations; where it makes none, from backward passes; else from lines in no module."""
    training = Training(Recorder())
    for _ in range(20):
        training.step(leak=1000)
    training.recorder.annotations.clear()
    memory, found = judge(training.recorder)
    assert memory.phases.told_by == "allocations in optimizer steps" and len(memory.phases.boundaries) == 20
    assert found["MEM102"].measured.bytes_per_step == 1000

    plain = Training(Recorder())
    for _ in range(20):
        plain.recorder.free(*plain.backward(list(plain.forward())))
    memory, _ = judge(plain.recorder)
    assert memory.phases.told_by == "backward passes" and len(memory.phases.boundaries) >= 19

    inference = Training(Recorder())
    for _ in range(20):
        batch = inference.recorder.alloc(64 * KB, KEEPING[1:])
        for made in list(inference.forward()):
            inference.recorder.free(made)
        inference.recorder.free(batch)
    memory, _ = judge(inference.recorder)
    assert memory.phases.told_by == "the period of the allocations" and len(memory.phases.boundaries) == 20


def test_a_batch_fetched_during_the_backward_pass_does_not_end_it() -> None:
    """Another thread allocates in the middle; the steps are told by backward passes."""
    training = Training(Recorder())
    r, batches = training.recorder, list[int]()
    for _ in range(12):
        saved = list(training.forward())
        first = training.backward(saved[12:])
        r.free(*batches)
        batches = [r.alloc(256 * KB, LOADING), r.alloc(8 * KB, LOADING)]
        r.free(*first, *training.backward(saved[:12]))
    memory, found = judge(r)
    assert len(memory.phases.boundaries) == 12 and len(memory.phases.backwards) == 12
    assert not found


def test_layers_of_one_forward_pass_are_no_steps() -> None:
    training = Training(Recorder(), activations=200)
    list(training.forward())
    memory, found = judge(training.recorder)
    assert not memory.phases.boundaries and not found


def test_what_is_older_than_the_recording_may_be_above_the_limit_alone() -> None:
    training = Training(Recorder())
    training.recorder.events.clear()
    memory, found = judge(training.recorder, 20 * MB)
    assert memory.lifetimes.peak > 20 * MB and found["MEM304"].location is None
