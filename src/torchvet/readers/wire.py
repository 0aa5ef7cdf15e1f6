"""A `Snapshot` as bytes, from the process that read it to the one that judges it. Plain MessagePack, no pickle."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec

from torchvet.readers.snapshot import Annotation, Block, Frame, Segment, Snapshot, Trace


class _Wire(msgspec.Struct, array_like=True):
    """Rows of plain values; arrays of numbers as their bytes."""

    path: str
    segments: list[tuple[int, int, int, int, bool, bool, bytes]]
    traces: list[tuple[int, bytes, bytes, bytes, bytes, bytes, int, int, bytes]]
    frames: list[tuple[str, int, str, str]]
    stacks: bytes
    ends: bytes
    annotations: list[tuple[str, str, int, int]]
    settings: dict[str, str]


def to_bytes(snapshot: Snapshot) -> bytes:
    """The snapshot as one message."""
    flat, ends = array("i"), array("i")
    for stack in snapshot.stacks:
        flat.extend(stack)
        ends.append(len(flat))
    return msgspec.msgpack.encode(
        _Wire(
            snapshot.path,
            [(s.device, s.address, s.size, s.stream, s.small, s.expandable, _blocks(s)) for s in snapshot.segments],
            [
                (
                    t.device,
                    t.actions,
                    t.addresses.tobytes(),
                    t.sizes.tobytes(),
                    t.stacks.tobytes(),
                    t.streams.tobytes(),
                    t.microseconds,
                    t.began,
                    t.times.tobytes(),
                )
                for t in snapshot.traces
            ],
            [(f.path, f.line, f.name, f.fx) for f in snapshot.frames],
            flat.tobytes(),
            ends.tobytes(),
            [(a.name, a.stage, a.device, a.before) for a in snapshot.annotations],
            snapshot.settings,
        )
    )


def from_bytes(message: bytes) -> Snapshot:
    """The snapshot in a message. Raises msgspec.MsgspecError and ValueError for anything else."""
    wire = msgspec.msgpack.decode(message, type=_Wire)
    flat, ends = _array("i", wire.stacks), _array("i", wire.ends)
    stacks = tuple(tuple(flat[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True))
    return Snapshot(
        path=wire.path,
        segments=tuple(_segment(*row) for row in wire.segments),
        traces=tuple(_trace(*row) for row in wire.traces),
        frames=tuple(Frame(*row) for row in wire.frames),
        stacks=stacks,
        annotations=tuple(Annotation(*row) for row in wire.annotations),
        settings=wire.settings,
    )


def _array(code: str, data: bytes) -> array[int]:
    found: array[int] = array(code)
    found.frombytes(data)
    return found


def _blocks(segment: Segment) -> bytes:
    flat = array("q")
    for b in segment.blocks:
        flat.extend((b.address, b.size, b.requested, b.state, b.stack))
    return flat.tobytes()


def _segment(device: int, address: int, size: int, stream: int, small: bool, expandable: bool, data: bytes) -> Segment:
    flat = _array("q", data)
    blocks = tuple(Block(*flat[at : at + 5]) for at in range(0, len(flat), 5))
    return Segment(device, address, size, stream, small, expandable, blocks)


def _trace(device: int, actions: bytes, *columns: Any) -> Trace:
    addresses, sizes, stacks, streams, microseconds, began, times = columns
    return Trace(
        device,
        actions,
        _array("q", addresses),
        _array("q", sizes),
        _array("i", stacks),
        _array("q", streams),
        microseconds,
        began,
        _array("q", times),
    )
