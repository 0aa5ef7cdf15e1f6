"""What a report says of a device's memory, as plain JSON: sizes in bytes, rates per step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchvet.snapshots.accounting import account

if TYPE_CHECKING:
    from torchvet.snapshots.memory import DeviceMemory
    from torchvet.snapshots.state_at import Moment, Row

_LINES, _MODULES, _PINS = 20, 10, 10


def facts_of(memory: DeviceMemory) -> dict[str, Any]:
    """The facts of one device."""
    account_ = account(memory.segments)
    lifetimes, failure = memory.lifetimes, memory.failure
    facts: dict[str, Any] = {
        "path": memory.snapshot.path, "device": memory.device, "events": len(lifetimes.trace),
        "seconds": lifetimes.trace.microseconds / 1e6 or None,
        "steps": {"count": len(memory.phases.boundaries), "told_by": memory.phases.told_by or None},
        "reserved": memory.reserved, "in_use": memory.end.bytes,
        "at_end": {name: getattr(account_, name) for name in
                   ("requested", "rounding", "slack", "split_free", "whole_free", "reserved")},
        "peak": _moment(memory.peak), "end": {"bytes": memory.end.bytes, "categories": memory.end.by_category},
        "growth": _growth(memory), "fragmentation": _fragmentation(memory),
        "failure": None, "settings": memory.snapshot.settings,
    }  # fmt: skip
    if failure is not None:
        facts["failure"] = {
            "event": failure.at, "requested": failure.requested, "driver_free": failure.driver_free,
            "capacity": failure.capacity, "reason": failure.reason, "failures": len(memory.ooms),
            **_moment(failure.moment),
        }  # fmt: skip
    return facts


def _moment(moment: Moment) -> dict[str, Any]:
    """Bytes in use after an event, by category, line and module."""
    return {
        "bytes": moment.bytes, "event": moment.at, "categories": moment.by_category,
        "lines": [_row(r) for r in moment.lines[:_LINES]],
        "modules": dict(list(moment.by_module.items())[:_MODULES]),
    }  # fmt: skip


def _row(row: Row) -> dict[str, Any]:
    place = row.place
    return {
        "path": place.path if place else None, "line": place.line if place else None,
        "function": place.function if place else None, "bytes": row.bytes, "blocks": row.blocks,
        "category": row.category, "operator": row.operator or None, "backward": bool(row.note),
    }  # fmt: skip


def _growth(memory: DeviceMemory) -> dict[str, Any] | None:
    growth = memory.growth
    if growth is None:
        return None
    return {
        "bytes_per_step": growth.per_step, "explained_bytes_per_step": growth.explained, "steps": growth.steps,
        "lines": [
            {"path": leak.place.path if leak.place else None, "line": leak.place.line if leak.place else None,
             "function": leak.place.function if leak.place else None, "bytes_per_step": leak.per_step,
             "bytes": leak.total, "blocks": leak.total_blocks}
            for leak in growth.leaks[:_LINES]
        ],
    }  # fmt: skip


def _fragmentation(memory: DeviceMemory) -> dict[str, Any]:
    """At the last out-of-memory error, else at the peak."""
    layout = memory.layout
    return {
        "reserved": layout.reserved, "split_free": layout.split_free, "whole_free": layout.whole_free,
        "share": layout.share, "split_segments": layout.split_segments, "largest_free": layout.largest_free,
        "pins": [
            {"path": pin.place.path if pin.place else None, "line": pin.place.line if pin.place else None,
             "category": pin.category, "blocks": pin.blocks, "bytes": pin.bytes, "free": int(pin.free),
             "segments": len(pin.segments)}
            for pin in layout.pins[:_PINS]
        ],
    }  # fmt: skip
