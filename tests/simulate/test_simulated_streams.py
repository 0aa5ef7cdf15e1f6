"""Memory of streams: pools of their own, and `record_stream`."""

from __future__ import annotations

import threading
from typing import Any

import torch

MIB = 1 << 20


def _bytes(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def _segments() -> list[tuple[int, int]]:
    return sorted((s["stream"], s["total_size"]) for s in torch.cuda.memory_snapshot())


def test_each_stream_has_its_own_pool() -> None:
    side = torch.cuda.Stream()
    kept = _bytes(12 * MIB)
    del kept
    with torch.cuda.stream(side):
        one = _bytes(12 * MIB)
        inner = torch.cuda.Stream()
        with inner:
            two = _bytes(100)
        three = _bytes(100)
    four = _bytes(100)
    assert _segments() == sorted(
        [(0, 12 * MIB), (0, 2 * MIB), (side.stream_id, 12 * MIB), (side.stream_id, 2 * MIB), (inner.stream_id, 2 * MIB)]
    )
    del one, two, three, four
    again = _bytes(12 * MIB)
    assert torch.cuda.memory_reserved() == 30 * MIB and again.is_cuda
    seen: list[Any] = []
    torch.cuda.set_stream(side)
    thread = threading.Thread(target=lambda: seen.append(torch.cuda.current_stream().stream_id))
    thread.start()
    thread.join()
    assert seen == [0] and torch.cuda.current_stream() == side
    assert torch.cuda.current_stream(1).stream_id == 0


def test_streams_come_from_a_pool_of_32() -> None:
    streams = [torch.cuda.Stream() for _ in range(33)]
    assert streams[0] == streams[32] and len({s.stream_id for s in streams}) == 32
    assert torch.cuda.Stream(priority=-1) not in streams


def test_a_recorded_stream_delays_the_free_until_memory_is_asked_for() -> None:
    side = torch.cuda.Stream()
    torch.cuda.memory._record_memory_history()
    batch = _bytes(4 * MIB)
    batch.record_stream(side)
    del batch
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == 0 and stats["active_bytes.all.current"] == 4 * MIB
    (segment,) = torch.cuda.memory_snapshot()
    assert [b["state"] for b in segment["blocks"]] == ["active_pending_free", "inactive"]
    assert segment["active_size"] == 4 * MIB and segment["allocated_size"] == 0
    following = _bytes(4 * MIB)
    assert torch.cuda.memory_stats()["active_bytes.all.current"] == 4 * MIB == following.numel()
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    actions = [e["action"] for e in events if e["action"] != "snapshot"]
    assert actions == ["segment_alloc", "alloc", "free_requested", "free_completed", "alloc"]
    from torchvet.simulate.refusals import asked

    assert any("record_stream" in what for what in asked)


def test_its_own_stream_views_and_host_tensors_are_no_reason_to_wait() -> None:
    batch = _bytes(4 * MIB)
    batch.record_stream(torch.cuda.current_stream())
    torch.empty(0, device="cuda").record_stream(torch.cuda.Stream())
    del batch
    assert torch.cuda.memory_stats()["active.all.current"] == 0
    whole = _bytes(4 * MIB)
    whole[:10].record_stream(torch.cuda.Stream())
    del whole
    assert torch.cuda.memory_stats()["active.all.current"] == 1
    torch.cuda.empty_cache()
    assert torch.cuda.memory_stats()["active.all.current"] == 0 == torch.cuda.memory_reserved()
