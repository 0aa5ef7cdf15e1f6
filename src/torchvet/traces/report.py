"""The report on one trace or on the traces of many ranks: digests in, findings and facts out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from torchvet.finding import SEVERITIES, Finding, NotChecked, Report, Verdict
from torchvet.formatting import IDLE_WORDS, percent, picked
from torchvet.readers.trace_facts import PHASES, Cost, RankTrace, Trace
from torchvet.traces.ranks import digests

_TOP = 5
LARGE = 0.25
"""Of the time: what the device is idle for and no rule explains is said from here on."""


def report_on(
    paths: Sequence[Path],
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    jobs: int | None = None,
    observer: Callable[[RankTrace], None] | None = None,
) -> Report:
    """Read profiler traces and say what they show. Several files are the ranks of one run; no torch is imported.

    `select` and `ignore` are prefixes of codes, `jobs` the processes (by default one a core), `observer` is
    given each rank's digest. Raises `BadInput` when a file is no trace.
    """
    trace = Trace(digests(paths, jobs))
    if observer is not None:
        for rank in trace.ranks:
            observer(rank)
    findings = sorted(found_in(trace, select, ignore), key=_order)
    facts = _facts(trace, findings)
    judged = any(r.steps is not None for r in trace.ranks)
    verdict: Verdict = "findings" if findings else "clean" if judged else "undetermined"
    return Report(
        subject=_subject(trace),
        verdict=verdict,
        findings=findings,
        not_checked=[*_not_checked(trace), *_idle_unexplained(facts)],
        facts=facts,
    )


def found_in(trace: Trace, select: Sequence[str], ignore: Sequence[str]) -> list[Finding]:
    """What the rules find in the digests of some ranks."""
    from torchvet.rules import rules_with, wanted

    rules = (rule for rule in rules_with("in_trace") if wanted(rule.code, select, ignore))
    return [finding for rule in rules for finding in rule.in_trace(trace)]


def _order(finding: Finding) -> tuple[int, float, str]:
    return -SEVERITIES.index(finding.severity), -(finding.measured.seconds_per_step or 0.0), finding.code


def _subject(trace: Trace) -> dict[str, Any]:
    subject: dict[str, Any] = {"kind": "trace", "path": trace.ranks[0].path}
    if len(trace.ranks) > 1:
        subject["paths"] = [r.path for r in trace.ranks]
        subject["ranks"] = [r.rank for r in trace.ranks]
    return subject


def _not_checked(trace: Trace) -> list[NotChecked]:
    several = len(trace.ranks) > 1
    found: dict[tuple[str, str], list[int | None]] = {}
    for rank in trace.ranks:
        for note in rank.notes:
            found.setdefault((note.check, note.reason), []).append(rank.rank)
    result = []
    for (check, reason), ranks in found.items():
        whose = f" (rank {', '.join(map(str, ranks))})" if several and len(ranks) < len(trace.ranks) else ""
        result.append(NotChecked(check=check, reason=reason + whose))
    return result


def _facts(trace: Trace, findings: list[Finding]) -> dict[str, Any]:
    """In full the rank that the gravest finding is about, else the one with the longest step; of every rank a line."""
    accused = next((f.rank for f in findings if f.rank is not None and f.severity != "info"), None)
    ranks = [r for r in trace.ranks if accused is not None and r.rank == accused] or trace.ranks
    shown = max(ranks, key=lambda r: r.steps.seconds if r.steps is not None else 0.0)
    facts = _of_rank(shown)
    facts["steps"] = len(shown.steps.durations) if shown.steps is not None and shown.steps.known else 0
    facts["unexplained"] = _unexplained(shown, findings)
    if len(trace.ranks) > 1:
        facts["rank"] = shown.rank
        facts["ranks"] = [_line(r) for r in trace.ranks]
    return facts


def _unexplained(rank: RankTrace, findings: list[Finding]) -> dict[str, Any] | None:
    """The share of the time in which the device is idle and no finding says why, where it is large; what it is most."""
    if rank.gpu is None or rank.steps is None or not rank.steps.seconds:
        return None
    idle = {why: seconds / rank.steps.seconds for why, seconds in rank.gpu.idle.items() if seconds > 0}
    own = [f for f in findings if f.rank is None or f.rank == rank.rank]
    share = sum(idle.values()) - sum(f.measured.share or 0.0 for f in own)
    if share < LARGE:
        return None
    return {"idle": sum(idle.values()), "share": share, "most": max(idle, key=lambda why: idle[why])}


def _idle_unexplained(facts: dict[str, Any]) -> list[NotChecked]:
    lost = facts["unexplained"]
    if lost is None:
        return []
    said = f"it is idle for {percent(lost['idle'])} of the time, most of it {IDLE_WORDS[lost['most']]}"
    return [NotChecked(check="why the device is idle", reason=f"{said}; no rule says why")]


def _of_rank(rank: RankTrace) -> dict[str, Any]:
    facts: dict[str, Any] = {"events": rank.events, "world": rank.world, "slowed_by": rank.slowed}
    facts["devices"] = rank.device_names
    if rank.steps is not None:
        steps = rank.steps
        facts["step"] = {"seconds": steps.seconds, "median": steps.median, "low": steps.low, "high": steps.high}
        facts["step"] |= {"steady": steps.count, "known": steps.known, "found_by": steps.found_by}
        facts["step"] |= {"durations": steps.durations[:100], "apart": [asdict(s) for s in steps.apart]}
        whole = sum(rank.phases.values()) or 1.0
        facts["phases"] = {p: rank.phases.get(p, 0.0) / whole for p in PHASES if rank.phases.get(p)}
    if rank.gpu is not None:
        facts["gpu"] = asdict(rank.gpu)
        facts["gpu"]["kernels_per_step"] = facts["gpu"].pop("kernels")
    facts["costs"] = _costs(rank)
    facts["precision"] = rank.precision
    facts["misaligned"] = [{"sizes": c.what, "seconds": c.duration, "count": c.count} for c in rank.misaligned[:_TOP]]
    facts["memory"] = [asdict(use) for use in rank.memory]
    return facts


def _costs(rank: RankTrace) -> list[dict[str, Any]]:
    """What costs most, of waits, transfers and layout copies: seconds per step lost, whatever rule it belongs to."""
    costs = [c for c in [*rank.syncs, *rank.transfers, *rank.layouts] if c.seconds > 0]
    return [_cost(c) for c in sorted(costs, key=lambda c: -c.seconds)[:_TOP]]


def _cost(cost: Cost) -> dict[str, Any]:
    facts = asdict(cost)
    return facts | picked(facts.pop("where"), "function", "path", "line")


def _line(rank: RankTrace) -> dict[str, Any]:
    gpu = rank.gpu
    facts = picked(rank, "rank", "path") | picked(gpu, "busy_share", "compute")
    facts["step"] = rank.steps.median if rank.steps is not None else None
    facts["collectives"] = _collectives(rank)
    facts["idle"] = sum(gpu.idle.values()) if gpu is not None else None
    facts["peak"] = rank.memory[0].peak if rank.memory else None
    return facts


def _collectives(rank: RankTrace) -> float | None:
    """Seconds per step within collectives, waiting for other ranks included: the last to arrive has the least."""
    if rank.steps is None or not rank.collectives:
        return None
    return sum(c.duration for c in rank.collectives) / rank.steps.count
