"""Rows of a snapshot's tables: the blocks in use at the peak, and the lines whose blocks pile up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchvet.exporting.plain import plain
from torchvet.exporting.snapshot_stacks import python_frames
from torchvet.formatting import picked
from torchvet.snapshots.places import BACKWARD

if TYPE_CHECKING:
    from torchvet.readers.snapshot import Block
    from torchvet.snapshots.lifetimes import Older
    from torchvet.snapshots.memory import DeviceMemory, SnapshotMemory
    from torchvet.snapshots.places import Place

BLOCKS = (
    "rank", "device", "address", "requested_bytes", "bytes", "category", "phase", "step", "age_steps", "event",
    "operator", "file", "line", "function", "backward_of", "stack",
)  # fmt: skip
"""`requested_bytes` add up to the peak; `bytes` is what the allocator set aside, known only of blocks that the snapshot
still holds. `step` is the one that made the block, `age_steps` how many before the peak's that was, `event` the number
of the allocation. Blocks that are older than the recording have none of these. Where `backward_of` is true the line is
the forward's whose backward made the block. `stack` is `a;b;c`, outermost first."""


def block_rows(rank: int, memory: SnapshotMemory) -> Iterator[dict[str, Any]]:
    """One row a block in use at its device's peak, with the columns of `BLOCKS`."""
    for device in memory.devices:
        yield from _Rows(rank, device)


def growth_rows(rank: int, memory: SnapshotMemory) -> Iterator[dict[str, Any]]:
    """One row a line whose blocks pile up from step to step."""
    for device in memory.devices:
        for leak in device.growth.leaks if device.growth is not None else ():
            sizes = {"bytes_per_step": leak.per_step, "requested_bytes": leak.total, "blocks": leak.total_blocks}
            yield {"rank": rank, "device": device.device, **sizes, **_line(leak.place)}


class _Rows:
    """The rows of one device."""

    def __init__(self, rank: int, device: DeviceMemory) -> None:
        self._rank, self._device = rank, device
        self._held: dict[int, Block] = {b.address: b for s in device.segments for b in s.blocks if b.active}
        self._stacks: dict[int, str] = {}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        peak = self._device.peak
        for start in peak.blocks:
            yield self._of_recording(start)
        for older in peak.older:
            yield self._of_older(older, peak.categories.older[older])

    def _of_recording(self, start: int) -> dict[str, Any]:
        device, peak = self._device, self._device.peak
        lifetimes, phases = device.lifetimes, device.phases
        trace = lifetimes.trace
        number = trace.stacks[start]
        facts, step = device.stacks[number], phases.step(start) if phases.boundaries else None
        place = facts.place
        beneath = peak.forward_line(start) if place is None and facts.kind == BACKWARD else None
        still = lifetimes.ends[start] == len(trace)
        row = self._common(trace.addresses[start], trace.sizes[start], still, number)
        row |= {"category": peak.category[start], "phase": facts.kind, "event": start, **_line(place or beneath)}
        row |= {"step": step, "age_steps": None if step is None else phases.step(peak.at) - step}
        return row | {"backward_of": beneath is not None}

    def _of_older(self, block: Older, category: str) -> dict[str, Any]:
        facts = self._device.stacks[block.stack]
        still = block.end == len(self._device.lifetimes.trace)
        row = self._common(block.address, block.size, still, block.stack)
        row |= {"category": category, "phase": facts.kind if block.stack else None, **_line(facts.place)}
        return row | {"backward_of": False}

    def _common(self, address: int, requested: int, still: bool, stack: int) -> dict[str, Any]:
        block = self._held.get(address) if still else None
        # All columns, in their order, even those that the caller leaves empty.
        row: dict[str, Any] = dict.fromkeys(BLOCKS)
        row |= {"rank": self._rank, "device": self._device.device, "address": address, "requested_bytes": requested}
        row |= {"operator": self._device.stacks[stack].operator or None, "stack": self._stack(stack)}
        return row | {"bytes": block.size if block is not None else None}

    def _stack(self, number: int) -> str:
        """Kept, since thousands of blocks share a stack. A semicolon in a name would be taken for the next frame."""
        text = self._stacks.get(number)
        if text is None:
            frames = python_frames(self._device, number)
            text = self._stacks[number] = plain(";".join(f.name.replace(";", ",") for f in frames))
        return text


def _line(place: Place | None) -> dict[str, Any]:
    return {"file": getattr(place, "path", None), **picked(place, "line", "function")}
