"""The report on what-if questions: the answers as facts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torchvet.finding import Finding, NotChecked, Report
from torchvet.recording import Recording
from torchvet.renderers.places import place_of
from torchvet.whatif.memory_budget import Situation, situation_of
from torchvet.whatif.scenarios import Answer, Fix, answers, remarks

_FEW = 10
"""Fewer steps cannot tell growth from warm-up."""


def whatif(recording: Recording, findings: list[Finding], half: Recording | None, gaps: list[NotChecked]) -> Report:
    """What shortcuts and fixes would save the program of a recording; `half` is a recording with half the batch.

    Of several ranks, the report is about the one that needs most.
    """
    program = recording.ranks[0].program if recording.ranks else None
    subject = {"kind": "whatif", "path": program.path if program is not None else str(recording.path)}
    found = [s for r in recording.ranks if (s := situation_of(r)) is not None]
    if not found:
        gaps = [*gaps, NotChecked(check="memory", reason="no steps were sampled; run ten or more")]
        return Report(subject=subject, verdict="undetermined", not_checked=gaps)
    now = max(found, key=lambda s: s.base + s.growth * s.steps)
    halves = [s for r in half.ranks if (s := situation_of(r)) is not None] if half is not None else []
    halved = max(halves, key=lambda s: s.base, default=None)
    if now.steps < _FEW:
        reason = f"{now.steps} steps are too few to tell growth from warm-up; run ten or more"
        gaps = [*gaps, NotChecked(check="growth from step to step", reason=reason)]
    # Times of a simulated GPU say nothing about a real one.
    seconds = None if program is not None and program.simulated else now.seconds
    rows = [_row(a, seconds) for a in answers(now, halved, list(_fixes(findings)))]
    facts = {"whatif": {"answers": rows, "remarks": list(remarks(now)), **_amounts(now)}}
    return Report(subject=subject, verdict="clean", not_checked=gaps, facts=facts)


def _fixes(findings: list[Finding]) -> Iterator[Fix]:
    """The fixes of findings that grow."""
    for finding in findings:
        rate = finding.measured.bytes_per_step
        if rate and finding.location is not None and finding.severity != "info":
            yield Fix(finding.code, f"{place_of(finding.location.path).file}:{finding.location.line}", rate)


def _row(answer: Answer, seconds: float | None) -> dict[str, Any]:
    """An answer in plain JSON: null means never if `known`, else unknown."""
    return {
        "asked": answer.asked,
        "known": answer.first is not None,
        "first": _finite(answer.first),
        "last": _finite(answer.last),
        "costs": answer.costs,
        "seconds": seconds * answer.first if seconds and answer.first and math.isfinite(answer.first) else None,
    }


def _finite(step: float | None) -> int | None:
    return int(step) if step is not None and math.isfinite(step) else None


def _amounts(now: Situation) -> dict[str, Any]:
    return {
        "step_kind": now.kind,
        "steps": now.steps,
        "base_bytes": int(now.base),
        "bytes_per_step": now.growth,
        "batch_bytes": int(now.of_batch),
        "room_bytes": now.room,
        "memory_limit": {"bytes": now.limit, "source": now.limit_source},
        "seconds_per_step": now.seconds,
    }
