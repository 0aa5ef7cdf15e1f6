"""Fragmentation, out of memory, empty_cache, churn, large temporaries, stale results: planted, found, told apart."""

from __future__ import annotations

from typing import Any

import pytest
from judging_snapshots import judge
from making_snapshots import (
    KEEPING,
    MAIN,
    MB,
    OutOfMemory,
    Recorder,
    Settings,
    Training,
    forward_stacks,
    fragmented,
    frame,
)  # fmt: skip

from torchvet.snapshots.accounting import account
from torchvet.snapshots.layout import layout_at


def test_out_of_memory_by_growth() -> None:
    training = Training(Recorder(400 * MB))
    with pytest.raises(OutOfMemory):
        for _ in range(400):
            training.step(leak=3 * MB)
    memory, found = judge(training.recorder)
    failure = memory.failure
    assert failure is not None and failure.reason == "growth" and failure.capacity == 400 * MB
    assert failure.leaked == 3 * MB * len(training.kept)
    assert failure.moment.bytes == training.recorder.allocator.requested
    assert found["MEM304"].severity == found["MEM102"].severity == "error" and "MEM301" not in found
    assert "3.1 MB in every step" in found["MEM304"].message
    bought = [r.message for r in found["MEM304"].related if r.role == "would buy"]
    assert f"twice the memory lasts {400 / 3:,.0f} steps longer" in bought and len(bought) == 3


def test_out_of_memory_by_a_peak() -> None:
    training = Training(Recorder(1900 * MB), width=32 * MB)
    for _ in range(12):
        training.step()
    with pytest.raises(OutOfMemory):
        training.step(scale=200)
    memory, found = judge(training.recorder)
    assert memory.failure is not None and memory.failure.reason == "peak"
    assert {"MEM304"} <= set(found) and not {"MEM301", "MEM102", "MEM101"} & set(found)
    assert found["MEM304"].location is not None


def test_out_of_memory_by_fragmentation() -> None:
    training = Training(Recorder(4000 * MB))
    for _ in range(9):
        training.step()
    fragmented(training.recorder, 24)
    training.recorder.allocator.capacity = training.recorder.allocator.reserved + 100 * MB
    with pytest.raises(OutOfMemory):
        training.recorder.alloc(300 * MB, forward_stacks()[0])
    memory, found = judge(training.recorder)
    assert memory.failure is not None and memory.failure.reason == "fragmentation"
    assert found["MEM301"].severity == found["MEM304"].severity == "error"
    assert found["MEM301"].measured.bytes == memory.layout.split_free == training.recorder.allocator.split_free()
    assert found["MEM301"].location is not None and found["MEM301"].location.line == 61, "what pins the segments"


def test_an_error_that_was_caught_is_only_told() -> None:
    training = Training(Recorder(300 * MB))
    training.step()
    with pytest.raises(OutOfMemory):
        training.recorder.alloc(280 * MB, forward_stacks()[0])
    for _ in range(3):
        training.step()
    assert judge(training.recorder)[1]["MEM304"].severity == "info"


@pytest.mark.parametrize("pins", [24, 60])
def test_pinned_segments_are_found_and_what_pins_them(pins: int) -> None:
    training = Training(Recorder())
    for _ in range(9):
        training.step()
    fragmented(training.recorder, pins)
    memory, found = judge(training.recorder)
    assert memory.layout_at_end.split_free == training.recorder.allocator.split_free()
    pin = memory.layout_at_end.pins[0]
    assert (pin.blocks, pin.bytes, len(pin.segments)) == (pins, pins * 2 * MB, pins)
    assert 0.6 * pins * 18 * MB <= pin.free <= pins * 18 * MB, "a few are put where steps have left room"
    assert ("MEM301" in found) == (memory.layout_at_end.share >= 0.25)
    assert "MEM301" in found or pins == 24


def test_the_layout_in_the_middle_is_that_of_the_middle() -> None:
    """Segments taken and given back later are undone."""
    recorder = Recorder()
    training = Training(recorder)
    training.step()
    at = len(recorder.events) - 1
    then = (recorder.allocator.reserved, recorder.allocator.split_free())
    recorder.free(recorder.alloc(512 * MB, KEEPING))
    recorder.empty_cache()
    recorder.alloc(64 * MB, KEEPING)
    memory, _ = judge(recorder)
    assert memory.peak_reserved == recorder.allocator.peak_reserved
    layout = layout_at(memory, at)
    assert (layout.reserved, layout.split_free) == then
    assert layout.held + layout.split_free + layout.whole_free == layout.reserved


def test_every_reserved_byte_is_accounted_for() -> None:
    training = Training(Recorder(), width=3 * MB + 1)
    for _ in range(3):
        training.step()
    memory, _ = judge(training.recorder)
    parts = account(memory.segments)
    assert parts.requested == training.recorder.allocator.requested
    assert parts.requested + parts.rounding + parts.slack == training.recorder.allocator.allocated
    assert parts.requested + parts.rounding + parts.slack + parts.split_free + parts.whole_free == parts.reserved


def test_expandable_segments_are_never_called_fragmented() -> None:
    training = Training(Recorder(settings=Settings(expandable_segments=True)))
    for _ in range(9):
        training.step()
    fragmented(training.recorder, 40)
    memory, found = judge(training.recorder)
    assert "MEM301" not in found and memory.layout.split_free == 0
    assert memory.reserved == training.recorder.allocator.reserved


@pytest.mark.parametrize(("every", "told"), [(1, True), (2, False), (30, False)])
def test_emptying_the_cache_in_every_step(every: int, told: bool) -> None:
    training = Training(Recorder())
    for step in range(30):
        training.step()
        if step % every == every - 1:
            training.recorder.empty_cache()
    found = judge(training.recorder)[1]
    assert ("MEM302" in found) == told
    if told:
        assert found["MEM302"].location is not None and found["MEM302"].location.line == 88


def test_segments_given_back_under_pressure_are_no_empty_cache() -> None:
    """The allocator gives back by itself what is too small: ever larger requests where there is room for one."""
    recorder = Recorder(420 * MB)
    training = Training(recorder)
    for step in range(12):
        training.step()
        recorder.free(recorder.alloc((120 + 4 * step) * MB, forward_stacks()[0]))
    assert any(e["action"] == "segment_free" for e in recorder.events)
    assert "MEM302" not in judge(recorder)[1]


def test_ever_new_shapes() -> None:
    found = {}
    for padded in (False, True):
        training = Training(Recorder())
        for step in range(60):
            training.step(scale=5 + (5.6 * -(-step // 15) if padded else 0.37 * step))
        found[padded] = judge(training.recorder)[1].get("MEM303")
    assert found[False] is not None and "100% of the later 30 steps" in found[False].message
    assert found[True] is None


def test_a_large_temporary() -> None:
    training = Training(Recorder(), width=16 * MB)
    for _ in range(4):
        training.step()
        training.recorder.free(training.recorder.alloc(700 * MB, forward_stacks()[3]))
    _, found = judge(training.recorder)
    assert found["MEM207"].severity == "warning" and found["MEM207"].measured.bytes == 700 * MB


def test_results_of_the_step_before_at_the_peak() -> None:
    training = Training(Recorder())
    old: list[int] = []
    for _ in range(10):
        recorder = training.recorder
        logits = recorder.alloc(60 * MB, forward_stacks()[1])
        saved = list(training.forward())
        large = recorder.alloc(80 * MB, forward_stacks()[2])
        fresh = training.backward([large, *saved])
        recorder.free(*training.gradients, *old)
        training.gradients = fresh
        training.optimize()
        old = [logits]
    _, found = judge(training.recorder)
    assert found["MEM202"].severity == "warning" and found["MEM202"].measured.bytes == 60 * MB


def frames(line: int, operator: str) -> list[dict[str, Any]]:
    """A stack whose C++ frames show the operator."""
    return [frame("??", 0, f"at::_ops::{operator}::call(at::Tensor const&)"), frame("model.py", line, "predict"), MAIN]


def test_a_large_result_where_nothing_is_trained_is_a_note_without_checkpointing() -> None:
    recorder = Recorder()
    names = ("linear", "silu", "mul_Tensor")
    recorder.free(*[recorder.alloc((300 + len(name)) * MB, frames(89, name)) for name in names])
    (found,) = judge(recorder)[1].values()
    assert found.code == "MEM207" and found.severity == "info" and "checkpoint" not in found.remedy.summary
    assert found.cause.startswith("what mul, linear and silu make there are few tensors")


def test_what_an_error_freed_was_there_for_the_backward_pass() -> None:
    """Results of a forward pass in the script's own lines: no inputs, nor temporaries that an error freed."""
    recorder = Recorder(1000 * MB)
    inputs = recorder.alloc(10 * MB, frames(10, "randn"))
    saved = [recorder.alloc(200 * MB, frames(20 + n, "linear")) for n in range(4)]
    with pytest.raises(OutOfMemory):
        recorder.alloc(400 * MB, frames(30, "linear"))
    recorder.free(*saved, inputs)
    failure = judge(recorder)[0].failure
    assert failure is not None
    assert {name: size // MB for name, size in failure.moment.by_category.items()} == {"activations": 800, "inputs": 10}
