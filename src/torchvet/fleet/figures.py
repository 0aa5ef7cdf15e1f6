"""The figures by which files are compared: a few numbers of a report on one of them."""

from __future__ import annotations

from typing import Any

from torchvet.finding import Finding, Report

Figures = dict[str, float | None]
COLUMNS = ("steps", "seconds_per_step", "peak_bytes", "reserved_bytes", "bytes_per_step", "heap_per_step", "busy_share")
"""What a row of the table of files has; None where a file does not say it."""
COMPARED = COLUMNS[1:]
"""The columns by which files stand out."""
MEASURED = ("bytes_per_step", "seconds_per_step", "bytes", "peak_bytes", "share")
"""What a finding may measure; the first of them that it has is its figure."""


def figures_of(report: Report) -> Figures:
    """The row of a report on a file."""
    found = {"snapshot": _of_snapshot, "trace": _of_trace}.get(report.subject["kind"], _of_run)(report.facts)
    return {name: found.get(name) for name in COLUMNS}


def categories_of(report: Report) -> dict[str, int]:
    """Bytes at the peak by category; empty for a trace."""
    facts = _largest(report.facts) if report.subject["kind"] == "snapshot" else report.facts
    found: dict[str, int] = (facts.get("peak") or {}).get("categories") or {}
    return dict(found)


def figure_of(finding: Finding) -> str | None:
    """The name of what a finding measures above all."""
    return next((name for name in MEASURED if getattr(finding.measured, name) is not None), None)


def _largest(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts of the device that holds most."""
    devices = facts["snapshots"]
    return max(devices, key=lambda d: d["peak"]["bytes"]) if devices else {}


def _of_snapshot(facts: dict[str, Any]) -> Figures:
    device = _largest(facts)
    if not device:
        return {}
    return {
        "steps": device["steps"]["count"] or None,
        "peak_bytes": device["peak"]["bytes"] if device["events"] else device["in_use"],
        "reserved_bytes": device["reserved"],
        "bytes_per_step": (device["growth"] or {}).get("bytes_per_step"),
    }


def _of_trace(facts: dict[str, Any]) -> Figures:
    step, memory = facts.get("step") or {}, facts.get("memory") or []
    return {
        "steps": facts.get("steps") or None,
        "seconds_per_step": step.get("median"),
        "peak_bytes": memory[0]["peak"] if memory else None,
        "bytes_per_step": memory[0]["growth_per_step"] if memory else None,
        "busy_share": (facts.get("gpu") or {}).get("busy_share"),
    }


def _of_run(facts: dict[str, Any]) -> Figures:
    time, growth, host = (facts.get(name) or {} for name in ("time", "growth", "host"))
    return {
        "steps": facts.get("steps"),
        "seconds_per_step": time.get("median") or time.get("seconds_per_step"),
        "peak_bytes": (facts.get("peak") or {}).get("bytes"),
        "bytes_per_step": growth.get("bytes_per_step"),
        "heap_per_step": host.get("heap_per_step"),
    }
