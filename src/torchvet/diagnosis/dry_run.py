"""What a dry run shows of a step's memory: the parts of its peak, from the history that was kept, and its trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchvet.diagnosis.out_of_memory import there
from torchvet.errors import TorchvetError
from torchvet.formatting import picked
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place, Record
from torchvet.recording.records.dry import DryBatch, DryLine, DryModule, DryPart, DrySize
from torchvet.recording.records.training import Unchecked

if TYPE_CHECKING:
    from torchvet.snapshots.memory import DeviceMemory

_LINES = 20
_WORKSPACES = "cuBLAS workspaces"


def with_parts(recording: Recording) -> Recording:
    """The recording with the parts of its peak, if it is of a dry run whose history is there."""
    if not any(rank.last(DrySize) for rank in recording.ranks):
        return recording
    ranks = [RankRecording(r.rank, [*r.lines, *_parts(r, recording)], r.damaged, r.child) for r in recording.ranks]
    return Recording(ranks, recording.path)


def _parts(rank: RankRecording, recording: Recording) -> Iterator[Record]:
    size = rank.last(DrySize)
    # Parts that the run itself has written are there already.
    if size is None or size.snapshot is None or rank.last(DryPart) is not None:
        return
    # Here: only a dry run's report reads a snapshot, and in a process of its own.
    from torchvet.readers.isolated import read_snapshot
    from torchvet.snapshots.memory import SnapshotMemory

    try:
        memory = SnapshotMemory(read_snapshot(there(recording, size.snapshot)), None)
        found = [*_records(memory.devices[0], size)] if memory.devices else []
    except (TorchvetError, OSError) as error:
        yield Unchecked(check="the parts of the peak", reason=str(error))
        return
    yield from found


def _records(memory: DeviceMemory, size: DrySize) -> Iterator[Record]:
    trace, peak = memory.lifetimes.trace, memory.peak
    # A workspace is allocated within some line's product, and would count among that line's bytes.
    ours = {start for start in peak.blocks if trace.addresses[start] in size.workspaces}
    parts, blocks = Counter(peak.by_category), Counter[str]()
    hidden: Counter[tuple[object, str]] = Counter()
    for start in ours:
        hidden[memory.stacks[trace.stacks[start]].place, peak.category[start]] += trace.sizes[start]
        parts[peak.category[start]] -= trace.sizes[start]
        blocks[_WORKSPACES] += trace.sizes[start]
    parts.update(blocks)
    yield from (DryPart(category=name, bytes=held) for name, held in parts.most_common() if held > 0)
    # `lines` is in order of bytes.
    for row in peak.lines[:_LINES]:
        # Counted apart above; else the sum of the lines would exceed the peak.
        held = row.bytes - hidden[row.place, row.category]
        if held <= 0:
            continue
        place = Place(row.place.path, row.place.line, row.place.function) if row.place is not None else None
        yield DryLine(place=place, category=row.category, bytes=held, blocks=row.blocks, backward=bool(row.note))


def facts_of(rank: RankRecording) -> dict[str, Any]:
    """Plain JSON values: `peak` as in every report, and `dry`, what was measured of steps. Bytes."""
    size = rank.last(DrySize)
    if size is None:
        return {}
    parts = {p.category: p.bytes for p in rank.all(DryPart)}
    return {
        "peak": {"bytes": size.allocated, "reserved": size.reserved, "categories": parts},
        "dry": {
            "card": {"total": size.total, "room": size.room, "ran_out": size.ran_out},
            "batch": size.batch or None,
            "lines": [
                picked(line.place, "path", "line", "function") | picked(line, "bytes", "blocks", "category", "backward")
                for line in rank.all(DryLine)
            ],
            "modules": [picked(m, "name", "bytes", "blocks") for m in rank.all(DryModule)],
            "batches": [
                picked(b, "batch", "allocated", "reserved") | {"fits": b.fits(size)}
                # What was measured before what is only a bound.
                for b in sorted(rank.all(DryBatch), key=lambda b: (b.batch, b.bounded))
                if b.batch
            ],
        },
    }
