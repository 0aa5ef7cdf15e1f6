"""From the objects in a pickle to a `Snapshot`. Knows the schemas from torch 2.0 to 2.13; trusts nothing.

Traps: torch 2.0 has `history` in blocks and no addresses; 2.1 no `time_us`; some traces have no `frames`; an `oom`
event has `device_free` and no address; `torch.cuda.memory_snapshot()` is a bare list of segments.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from itertools import compress
from operator import itemgetter
from typing import Any

from torchvet.errors import BadInput
from torchvet.readers.snapshot import (
    ACTIONS,
    FREE_COMPLETED,
    FREE_REQUESTED,
    STATES,
    Annotation,
    Block,
    Segment,
    Snapshot,
    Trace,
)
from torchvet.readers.stacks import Stacks, text_of

_CODES = {name: code for code, name in enumerate(ACTIONS)}
_OTHER = _CODES["other"]
_DEVICES, _ANNOTATIONS = 4096, 1_000_000
_BYTES = 1 << 62
"""Bytes that all events may be about: sums of them must fit into 64 bits."""


def snapshot_of(raw: Any, path: str, file_bytes: int, times: bool = False) -> Snapshot:
    """The snapshot in an unpickled object. Raises `BadInput` where it is something else.

    `file_bytes` bounds how many rows there may be: a few shared objects must not be told as billions. `times` asks for
    the time of every event.
    """
    try:
        return _snapshot(raw, path, file_bytes, times)
    except BadInput as error:
        raise BadInput(f"a pickle, but no CUDA memory snapshot that can be read: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        raise BadInput(f"a pickle, but no CUDA memory snapshot that can be read ({reason})") from None


def _snapshot(raw: Any, path: str, file_bytes: int, times: bool) -> Snapshot:
    # `torch.cuda.memory_snapshot()` gives the segments alone.
    given = {"segments": raw} if isinstance(raw, list) else raw
    if not isinstance(given, dict) or not isinstance(given.get("segments"), list):
        raise BadInput(f"expected a dict with `segments`, or a list of segments; this is a {type(raw).__name__}")
    traces = given.get("device_traces") or []
    rows = _rows(given["segments"], traces)
    if rows > file_bytes or len(traces) > _DEVICES:
        raise BadInput(f"it tells {rows:,} rows in {file_bytes:,} bytes")
    stacks = Stacks()
    segments = tuple(_segment(s, stacks) for s in given["segments"])
    columns = tuple(_trace(n, t, stacks, times) for n, t in enumerate(traces))
    if _bytes(segments, columns) >= _BYTES:
        raise BadInput("its sizes add up to more bytes than any program can have allocated")
    return Snapshot(
        path=path,
        segments=segments,
        traces=columns,
        frames=tuple(stacks.frames),
        stacks=tuple(stacks.stacks),
        annotations=tuple(_annotation(a, traces) for a in (given.get("external_annotations") or [])[:_ANNOTATIONS]),
        settings=_settings(given.get("allocator_settings")),
    )


def _rows(segments: list[Any], traces: Any) -> int:
    """Events, segments and blocks: each takes at least a byte of the file."""
    return sum(map(len, traces)) + len(segments) + sum(len(s.get("blocks") or ()) for s in segments)


def _bytes(segments: Iterable[Segment], traces: Iterable[Trace]) -> int:
    return sum(sum(map(abs, t.sizes)) for t in traces) + sum(abs(b.size) for s in segments for b in s.blocks)


def _segment(raw: dict[str, Any], stacks: Stacks) -> Segment:
    address, blocks = _int(raw, "address"), []
    at = address
    for block in raw.get("blocks") or []:
        history = block.get("history") or [{}]
        size = _int(block, "size")
        requested = block.get("requested_size", history[0].get("real_size", size))
        blocks.append(
            Block(
                address=_int(block, "address", at),
                size=size,
                requested=requested if type(requested) is int and 0 <= requested <= size else size,
                state=STATES[block["state"]],
                stack=stacks.number(block.get("frames") or history[0].get("frames")),
            )
        )
        # Blocks lie one behind the other, so torch 2.0's, which have no addresses, get theirs.
        at += size
    return Segment(
        device=_int(raw, "device", 0),
        address=address,
        size=_int(raw, "total_size"),
        stream=_int(raw, "stream", 0),
        small=raw.get("segment_type") == "small",
        expandable=raw.get("is_expandable") is True,
        blocks=tuple(blocks),
    )


def _int(raw: dict[str, Any], key: str, default: int | None = None) -> int:
    value = raw.get(key, default)
    # `type` and not `isinstance`: True is an int, and columns take 64 bits.
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise BadInput(f"`{key}` is {value!r:.80}, expected a whole number")
    return value


def _trace(device: int, events: Any, stacks: Stacks, times: bool) -> Trace:
    if not isinstance(events, list) or not {dict}.issuperset(map(type, events)):
        raise BadInput("a device's trace is no list of events")
    # At C speed, column by column: a loop over half a million dicts would take longer than loading them.
    actions = bytes([_OTHER if c is None else c for c in map(_CODES.get, map(itemgetter("action"), events))])
    streams = _column(events, "stream")
    device_of = next((e["device"] for e in events[:1] if type(e.get("device")) is int), device)
    return Trace(
        device=device_of,
        actions=actions,
        addresses=_addresses(events),
        sizes=_column(events, "size"),
        stacks=_stacks(events, actions, stacks),
        streams=streams if any(streams) else array("q"),
        microseconds=_time(events[-1]) - _time(events[0]) if events else 0,
        began=_time(events[0]) if events else 0,
        times=array("q", map(_time, events) if times else ()),
    )


def _stacks(events: list[dict[str, Any]], actions: bytes, stacks: Stacks) -> array[int]:
    """What was freed where is not asked, so that two thirds of the stacks need not be looked at."""
    asked = [code != FREE_REQUESTED and code != FREE_COMPLETED for code in actions]
    found = array("i", bytes(4 * len(events)))
    number = stacks.number
    for at, event in compress(enumerate(events), asked):
        found[at] = number(event.get("frames"))
    return found


def _column(events: list[dict[str, Any]], key: str) -> array[int]:
    try:
        return array("q", list(map(itemgetter(key), events)))
    except KeyError:
        return array("q", [e.get(key, 0) for e in events])


def _addresses(events: list[dict[str, Any]]) -> array[int]:
    try:
        return array("q", list(map(itemgetter("addr"), events)))
    except KeyError:
        return array("q", [e["addr"] if "addr" in e else e.get("device_free", 0) for e in events])


def _time(event: dict[str, Any]) -> int:
    """When it happened, in microseconds; 0 where torch did not say."""
    value = event.get("time_us", 0)
    return value if type(value) is int and 0 <= value < 2**62 else 0


def _annotation(raw: dict[str, Any], traces: list[Any]) -> Annotation:
    """Told by the event that it stands before, so that the events' times need not be kept."""
    device, at = _int(raw, "device", 0), -1
    if 0 <= device < len(traces) and traces[device] and "time_us" in traces[device][0]:
        at = bisect_left(traces[device], _time(raw), key=_time)
    return Annotation(name=text_of(raw.get("name")), stage=text_of(raw.get("stage")), device=device, before=at)


def _settings(raw: Any) -> dict[str, str]:
    if not isinstance(raw, dict):
        return {}
    return {text_of(k): text_of(str(v)) for k, v in raw.items() if isinstance(v, (str, int, float, bool))}
