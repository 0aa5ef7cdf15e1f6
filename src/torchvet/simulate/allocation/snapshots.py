"""`torch.cuda.memory._snapshot()` of simulated devices, in the schema that torch 2.13 writes."""

from __future__ import annotations

from typing import Any

from torchvet.allocator.blocks import Block
from torchvet.simulate.allocation import memory
from torchvet.simulate.allocation.history import Event, Ring, Stack, frames_of


class Marks:
    """What the program adds to a recording: `record_function` ranges, and its own metadata."""

    def __init__(self) -> None:
        self.metadata = ""
        self._names: dict[str, int] = {}
        self._ranges = Ring(4, 0)

    def restart(self, most: int, clear: bool) -> None:
        """Keep at most so many ends of ranges from now on."""
        before, self._ranges = self._ranges, Ring(4, most)
        for row in () if clear else before.rows():
            self._ranges.add(*row)

    def note(self, name: str, ends: bool, device: int, time_us: int) -> None:
        """A range begins or ends."""
        self._ranges.add(self._names.setdefault(name, len(self._names)), ends, device, time_us)

    def annotations(self) -> list[dict[str, Any]]:
        """As they stand in a snapshot."""
        names, stages = list(self._names), ("START", "END")
        return [
            {"stage": stages[ends], "name": names[name], "device": device, "time_us": time_us}
            for name, ends, device, time_us in self._ranges.rows()
        ]


marks = Marks()


def snapshot(traces: bool = True) -> dict[str, Any]:
    """Segments, traces, annotations and settings of all devices."""
    held = memory.everyone()
    # Stacks recur with every step: their frames are written down once, for all events that have them.
    # Shared lists: pickle then writes each of them once.
    frames: dict[Stack, list[dict[str, Any]]] = {}
    found = {
        "segments": [s for m in held for s in segments_of(m)],
        "device_traces": [[_event(e, frames) for e in m.history.events] if traces else [] for m in held],
        "allocator_settings": settings_of(held[0]),
        "external_annotations": marks.annotations(),
    }
    for m in held:
        # After the events were copied, so that a snapshot does not show itself.
        # torch records an event of the snapshot, too.
        if m.history.tracing:
            m.history.note("snapshot", 0, m.allocator.allocated, 0)
    return found


def segments_of(held: memory.DeviceMemory) -> list[dict[str, Any]]:
    """A device's segments by address; of expandable ones each stretch that has memory."""
    found = [_segment(held, chain) for chain in held.allocator.chains()]
    return sorted(found, key=lambda s: int(s["address"]))


def _segment(held: memory.DeviceMemory, chain: list[Block]) -> dict[str, Any]:
    first = chain[0]
    used = [b for b in chain if b.allocated]
    size = sum(b.size for b in used)
    waiting = [b for b in chain if b.waiting]
    return {
        "device": held.index,
        "address": first.address,
        "total_size": sum(b.size for b in chain),
        "allocated_size": size,
        "active_size": size + sum(b.size for b in waiting),
        "requested_size": sum(b.requested for b in (*used, *waiting)),
        "stream": first.pool.stream,
        "segment_type": "small" if first.pool.small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": first.expandable,
        # A segment is kept under its negative address.
        "frames": frames_of(held.history.stacks.get(-first.segment)),
        "blocks": [_block(held, block) for block in chain],
    }


def _block(held: memory.DeviceMemory, block: Block) -> dict[str, Any]:
    stack = held.history.stacks.get(block.address) if block.allocated or block.waiting else None
    state = "active_allocated" if block.allocated else "active_pending_free" if block.waiting else "inactive"
    found: dict[str, Any] = {"address": block.address, "size": block.size, "requested_size": block.requested}
    return found | {"state": state, "frames": frames_of(stack)}


def _event(event: Event, frames: dict[Stack, list[dict[str, Any]]]) -> dict[str, Any]:
    where = "device_free" if event.action == "oom" else "addr"
    found = {"action": event.action, where: event.address, "size": event.size, "stream": event.stream}
    found |= {"time_us": event.time, "compile_context": "N/A", "user_metadata": marks.metadata}
    if event.stack is None:
        return found
    known = frames.get(event.stack)
    if known is None:
        known = frames[event.stack] = frames_of(event.stack)
    return {**found, "frames": known}


def settings_of(held: memory.DeviceMemory) -> dict[str, Any]:
    """The allocator's settings under torch's names."""
    s = held.allocator.settings
    divisions = s.roundup_intervals or (s.roundup_divisions,) * 16
    return {
        "PYTORCH_CUDA_ALLOC_CONF": held.configuration,
        "max_split_size": -1 if s.max_split_size is None else s.max_split_size,
        "garbage_collection_threshold": s.garbage_collection,
        "expandable_segments": s.expandable_segments,
        "pinned_num_register_threads": 1,
        "release_lock_on_cudamalloc": False,
        "pinned_use_cuda_host_register": False,
        "graph_capture_record_stream_reuse": False,
        "roundup_power2_divisions": {str(1 << n): d for n, d in enumerate(divisions)},
    }
