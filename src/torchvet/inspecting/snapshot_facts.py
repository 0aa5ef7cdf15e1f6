"""What a report says of a device's memory, as plain JSON: sizes in bytes, rates per step."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from torchvet.formatting import picked
from torchvet.snapshots.accounting import account

if TYPE_CHECKING:
    from torchvet.snapshots.layout import Layout
    from torchvet.snapshots.memory import DeviceMemory
    from torchvet.snapshots.state_at import Moment, Row

_LINES, _MODULES, _PINS = 20, 10, 10
PLACE = ("path", "line", "function")


def facts_of(memory: DeviceMemory) -> dict[str, Any]:
    """The facts of one device."""
    lifetimes, failure = memory.lifetimes, memory.failure
    facts: dict[str, Any] = {
        "path": memory.snapshot.path,
        "device": memory.device,
        "events": len(lifetimes.trace),
        "seconds": lifetimes.trace.microseconds / 1e6 or None,
        "steps": {"count": len(memory.phases.boundaries), "told_by": memory.phases.told_by or None},
        "reserved": memory.reserved,
        "in_use": memory.end.bytes,
        "limit": memory.limit,
        "at_end": asdict(account(memory.segments)),
        "peak": _moment(memory.peak),
        "end": {"bytes": memory.end.bytes, "categories": memory.end.by_category},
        "growth": _growth(memory),
        "fragmentation": _fragmentation(memory.layout),
        "failure": None,
        "settings": memory.snapshot.settings,
    }
    if failure is not None:
        asked = picked(failure, "requested", "driver_free", "capacity", "reason")
        facts["failure"] = {**asked, "failures": len(memory.ooms), **_moment(failure.moment), "event": failure.at}
    return facts


def _moment(moment: Moment) -> dict[str, Any]:
    """Bytes in use after an event, by category, line and module."""
    return {
        "bytes": moment.bytes,
        "event": moment.at,
        "categories": moment.by_category,
        "lines": [_row(r) for r in moment.lines[:_LINES]],
        "modules": dict(list(moment.by_module.items())[:_MODULES]),
    }


def _row(row: Row) -> dict[str, Any]:
    own = picked(row, "bytes", "blocks", "category") | {"operator": row.operator or None, "backward": bool(row.note)}
    return picked(row.place, *PLACE) | own


def _growth(memory: DeviceMemory) -> dict[str, Any] | None:
    growth = memory.growth
    if growth is None:
        return None
    lines = [
        {
            "bytes_per_step": leak.per_step,
            "bytes": leak.total,
            "blocks": leak.total_blocks,
            **picked(leak.place, *PLACE),
        }
        for leak in growth.leaks[:_LINES]
    ]
    rates = {"bytes_per_step": growth.per_step, "explained_bytes_per_step": growth.explained}
    return {**rates, "steps": growth.steps, "lines": lines}


def _fragmentation(layout: Layout) -> dict[str, Any]:
    """At the last out-of-memory error, else at the peak."""
    facts = picked(layout, "reserved", "split_free", "whole_free", "share", "split_segments", "largest_free")
    facts["pins"] = [
        picked(pin.place, "path", "line")
        | picked(pin, "category", "blocks", "bytes")
        | {"free": int(pin.free), "segments": len(pin.segments)}
        for pin in layout.pins[:_PINS]
    ]
    return facts
