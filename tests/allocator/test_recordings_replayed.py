"""Real recordings of GPUs, done again by the model: every allocation must come to lie where it lay there."""

from __future__ import annotations

import pickle
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from benchmarks.initial_state import pieces_at_the_beginning
from torchvet.allocator import CachingAllocator, Settings
from torchvet.readers.conversion import snapshot_of
from torchvet.readers.isolated import read_snapshot
from torchvet.readers.snapshot import ALLOC, FREES, SEGMENT_ALLOC, Snapshot, Trace

DATA = Path(__file__).resolve().parents[1] / "data"
MB = 1 << 20


class Placed(CachingAllocator):
    """Segments lie where the recording has them; when one is asked for, and how large, is the model's."""

    places: deque[tuple[int, int]]

    def addresses(self, size: int) -> int:
        """The recording's next segment."""
        address, wanted = self.places.popleft()
        assert size == wanted
        return address


def replayed(snapshot: Snapshot, trace: Trace) -> tuple[Placed, int]:
    """The model after the last event, and how many allocations came to lie elsewhere."""
    model = Placed(settings=Settings())
    model.places = deque((trace.addresses[at], trace.sizes[at]) for at in trace.where(SEGMENT_ALLOC))
    for piece in pieces_at_the_beginning(snapshot, trace, Settings()):
        model.adopt(piece.small, piece.stream, piece.blocks)
    moved: dict[int, int] = {}
    elsewhere = 0
    for code, address, size in zip(trace.actions, trace.addresses, trace.sizes, strict=True):
        if code == ALLOC:
            moved[address] = model.malloc(size)
            elsewhere += moved[address] != address
        elif code in FREES:
            model.free(moved.pop(address, address))
    return model, elsewhere


@pytest.mark.parametrize("name", ["magma", "silmont"])
def test_a_real_recording_is_reproduced_address_by_address(name: str) -> None:
    snapshot = read_snapshot(DATA / f"{name}.pickle")
    trace = next(t for t in snapshot.traces if len(t))
    model, elsewhere = replayed(snapshot, trace)
    assert elsewhere == 0 and not model.places
    ours = {c[0].address: [(b.address, b.size, b.allocated) for b in c] for c in model.chains()}
    assert ours == {s.address: [(b.address, b.size, b.active) for b in s.blocks] for s in snapshot.segments}
    assert model.reserved == sum(s.size for s in snapshot.segments)
    assert model.allocated == sum(s.held for s in snapshot.segments)


def _event(action: str, address: int, size: int) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1}


def test_a_rest_that_was_not_split_off_is_found_by_what_lies_behind_it() -> None:
    """A block of 19.5 MiB filled its segment's 20 MiB; then both were freed, and nothing says so but an address."""
    base, rest = 64 * MB, 19 * MB + MB // 2
    blocks = [
        {"address": base, "size": 30 * MB, "requested_size": 0, "state": "inactive"},
        {"address": base + 30 * MB, "size": 2 * MB, "requested_size": 2 * MB, "state": "active_allocated"},
    ]
    segment = {
        "device": 0, "address": base, "total_size": 32 * MB, "stream": 0, "segment_type": "large", "blocks": blocks,
    }  # fmt: skip
    events = [
        _event("free_completed", base + 20 * MB, 10 * MB),
        _event("alloc", base + 20 * MB, 4 * MB),
        _event("free_completed", base, rest),
        _event("free_completed", base + 20 * MB, 4 * MB),
    ]
    raw = {"segments": [segment], "device_traces": [events]}
    snapshot = snapshot_of(pickle.loads(pickle.dumps(raw)), "made.pickle", 1 << 20)
    (piece,) = pieces_at_the_beginning(snapshot, snapshot.traces[0], Settings())
    assert piece.blocks[0] == (base, 20 * MB, rest)
    assert replayed(snapshot, snapshot.traces[0])[1] == 0
