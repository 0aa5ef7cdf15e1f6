"""What of CUDA memory snapshots is compared: the peak by category and line, what is reserved, and what grows."""

from __future__ import annotations

from collections import Counter
from os import PathLike
from pathlib import Path

from torchvet.comparing.tables import Note, Side, Table, floats
from torchvet.readers.isolated import read_snapshot
from torchvet.snapshots.accounting import account
from torchvet.snapshots.memory import DeviceMemory, SnapshotMemory
from torchvet.snapshots.places import Place


def side_of(path: str | PathLike[str]) -> Side:
    """The tables of a snapshot; of several devices, of the one with the highest peak. Raises `BadInput`."""
    devices = SnapshotMemory(read_snapshot(path)).devices
    if not devices:
        return Side(kind="CUDA memory snapshot", path=str(path), tables=[])
    chosen = max(devices, key=lambda d: d.peak.bytes)
    side = side_of_memory(str(path), chosen)
    others = ", ".join(str(d.device) for d in devices if d is not chosen)
    if others:
        reason = f"device {chosen.device} is compared, which has the highest peak"
        side.notes.append(Note(f"device {others} of {Path(path).name}", reason))
    return side


def side_of_memory(path: str, memory: DeviceMemory) -> Side:
    """The tables of one device."""
    tables = [*_peak(memory), _reserved(memory)]
    if memory.growth is not None:
        tables.append(_growth(memory))
    return Side(kind="CUDA memory snapshot", path=path, tables=tables)


def _peak(memory: DeviceMemory) -> list[Table]:
    peak = memory.peak
    lines: Counter[str] = Counter()
    for row in peak.lines:
        lines[_named(row.place, row.note, row.category)] += row.bytes
    return [
        Table(title="peak by category", unit="bytes", total=peak.bytes, gates=True, rows=floats(peak.by_category)),
        Table(title="peak by line", unit="bytes", total=peak.bytes, rows=floats(lines)),
    ]


def _reserved(memory: DeviceMemory) -> Table:
    parts = account(memory.segments)
    names = {
        "asked for": parts.requested,
        "rounding": parts.rounding,
        "not worth splitting off": parts.slack,
        "free in pieces": parts.split_free,
        "free in whole segments": parts.whole_free,
    }
    rows = floats({name: size for name, size in names.items() if size})
    return Table(title="reserved at the end", unit="bytes", total=parts.reserved, rows=rows)


def _growth(memory: DeviceMemory) -> Table:
    growth = memory.growth
    leaks = growth.leaks if growth is not None else ()
    rows: Counter[str] = Counter()
    for leak in leaks:
        rows[_named(leak.place, "", "no line")] += leak.left
    steps = growth.steps if growth is not None else 1
    by_line = {name: left / steps for name, left in rows.items()}
    return Table(title="growth by line", unit="bytes per step", gates=True, total=rows.total() / steps, rows=by_line)


def _named(place: Place | None, note: str, otherwise: str) -> str:
    """A line by its file's name: two checkouts have the same names."""
    if place is None:
        return otherwise
    return f"{place.short}:{place.line} in {place.function}{' (backward)' if note else ''}"
