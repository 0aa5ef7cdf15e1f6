"""What blocks are: told by their lives, in recordings that were made and in real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from judging_snapshots import judge
from making_snapshots import BACKWARD, KB, MB, Recorder, Training, forward_stacks

from torchvet.finding import SEVERITIES
from torchvet.readers.isolated import read_snapshot
from torchvet.rules import all_rules
from torchvet.snapshots.memory import SnapshotMemory

HERE = Path(__file__).resolve().parents[1] / "data"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "snapshots"
REAL = sorted([*HERE.glob("*.pickle"), *SHARED.glob("*.pickle")])
TRAINING = ("wed_128_training", "wed_512_training", "hanmin_snapshot", "magma", "magma_memory_snapshot", "bcrafton")
each_real = pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)


def test_every_category_of_a_training_step_is_exact() -> None:
    training = Training(Recorder())
    for _ in range(5):
        training.step()
    memory, _ = judge(training.recorder)
    width = sum(4 * MB + 512 * n for n in range(8))
    assert memory.end.by_category == {
        "parameters": width, "gradients": width, "optimizer state": 16 * 4 * MB + 512 * 2 * sum(range(8)),
    }  # fmt: skip
    middle = memory.moment(memory.phases.backwards[2].start)
    saved = sum(300 * KB + 1000 * (n % 7) for n in range(24))
    assert middle.by_category["activations"] == saved
    assert middle.by_category["inputs"] == 264 * KB and middle.by_category["temporaries"] == 310 * KB
    assert sum(middle.by_category.values()) == middle.bytes


def test_what_another_stream_still_works_on_was_let_go_of() -> None:
    """An activation that the backward pass freed is one, although its memory comes back only in the next step."""
    recorder = Recorder()
    training = Training(recorder)
    waiting: list[int] = []
    for _ in range(12):
        large = recorder.alloc(3 * MB, forward_stacks()[0])
        saved = list(training.forward())
        first = recorder.alloc(1, BACKWARD)
        recorder.let_go(large)
        recorder.free(first, *training.backward(saved))
        for address in waiting:
            recorder.complete(address)
        waiting = [large]
    memory, found = judge(recorder)
    assert "MEM202" not in found and "MEM102" not in found
    start = next(s for s in memory.lifetimes.starts if memory.lifetimes.trace.sizes[s] == 3 * MB)
    assert memory.lifetimes.let_go[start] < memory.lifetimes.ends[start]
    assert memory.categories.of(start) == "activations"


def test_older_blocks_are_told_apart_where_behaviour_shows_it() -> None:
    recorder = Recorder()
    training = Training(recorder)
    constant = recorder.alloc(5 * MB, [])
    training.step()
    recorder.events.clear()
    recorder.annotations.clear()
    for _ in range(3):
        training.step()
    memory, _ = judge(recorder)
    width = sum(4 * MB + 512 * n for n in range(8))
    assert constant in {o.address for o in memory.lifetimes.older}
    assert memory.end.by_category["parameters (older)"] == width
    assert memory.end.by_category["optimizer state (older)"] == 2 * width
    assert memory.end.by_category["older than the recording"] == 5 * MB
    assert memory.moment(-1).by_category["gradients (older)"] == width


def test_a_backward_allocation_is_given_the_forward_line() -> None:
    training = Training(Recorder())
    for _ in range(3):
        training.step()
    memory, _ = judge(training.recorder)
    moment = memory.moment(memory.phases.backwards[1].start)
    temporary = [r for r in moment.lines if r.note]
    assert temporary and temporary[0].place is not None
    last = next(r for r in moment.lines if r.category == "activations")
    assert temporary[0].place.short == last.place.short if last.place else False


@each_real
def test_what_is_unknown_at_a_real_peak(path: Path) -> None:
    for device in SnapshotMemory(read_snapshot(path)).devices:
        assert sum(device.peak.by_category.values()) == device.peak.bytes
        assert sum(row.bytes for row in device.peak.lines) == device.peak.bytes
        assert device.peak.by_category.get("unknown", 0) <= 0.15 * device.peak.bytes
        if path.stem in TRAINING:
            plain = device.peak.by_category.get("older than the recording", 0) / device.peak.bytes
            assert plain < 0.42, "most of what is older is told apart"


@each_real
def test_real_recordings_of_healthy_programs_are_silent(path: Path) -> None:
    memory = SnapshotMemory(read_snapshot(path))
    found = [f for rule in all_rules() for f in rule.in_snapshot(memory)]
    serious = {f.code for f in found if SEVERITIES.index(f.severity) >= 1}
    # That one recording was made to show attention written out by hand: two thirds of its peak are its matrices.
    assert serious == ({"MEM207"} if path.stem.startswith("silmont") and "fwd" not in path.stem else set())


@each_real
def test_the_accounts_of_a_real_recording_balance(path: Path) -> None:
    for device in SnapshotMemory(read_snapshot(path)).devices:
        layout = device.layout_at_end
        assert layout.held + layout.split_free + layout.whole_free == layout.reserved == device.reserved
        assert layout.split_free == sum(s.split_free for s in device.segments)
        asked = sum(b.requested for s in device.segments for b in s.blocks if b.active)
        assert device.end.bytes == asked == device.lifetimes.active[-1]
