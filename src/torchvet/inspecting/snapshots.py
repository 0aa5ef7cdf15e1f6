"""The report on CUDA memory snapshots: what the rules find, what was seen, and what the files could not show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchvet.diagnosis.diagnose import gravest_first
from torchvet.finding import Finding, NotChecked, Report, Verdict
from torchvet.formatting import count, percent
from torchvet.gc_pause import collector_off
from torchvet.inspecting.observing import Observer
from torchvet.inspecting.snapshot_facts import facts_of
from torchvet.readers.isolated import ReadAhead
from torchvet.readers.snapshot import Snapshot

if TYPE_CHECKING:
    from torchvet.snapshots.ranks import RankPeak


def report_on(
    paths: Sequence[Path],
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    memory_limit: int | None = None,
    observer: Observer | None = None,
) -> Report:
    """One report on one snapshot or several (the ranks of a program, in the order given).

    One is read while the one before is judged: memory stays that of two at most. Raises `BadInput` for what is none.
    """
    findings: list[Finding] = []
    seen: list[dict[str, Any]] = []
    gaps: list[NotChecked] = []
    peaks: list[RankPeak] = []
    with ReadAhead(paths, observer is not None and observer.needs_times) as snapshots:
        rules = _rules("in_snapshot", select, ignore)  # loaded while the first file is read
        for rank, snapshot in enumerate(snapshots):
            with collector_off():
                found, facts, missing, peak = _judge(rank, snapshot, rules, memory_limit, observer)
            findings += [_ranked(f, rank) for f in found] if len(paths) > 1 else found
            seen += facts
            gaps += missing
            peaks += [peak] if peak is not None else []
    findings += compared(peaks, select, ignore)
    verdict = _verdict(findings, seen)
    if verdict == "undetermined" and not gaps:
        gaps.append(NotChecked(check="everything", reason="no memory was in use and nothing was recorded"))
    return Report(
        subject={"kind": "snapshot", "paths": [str(p) for p in paths]},
        verdict=verdict,
        findings=sorted(findings, key=gravest_first),
        not_checked=list(dict.fromkeys(gaps)),
        facts=_facts(seen),
    )


def compared(peaks: Sequence[RankPeak], select: Sequence[str], ignore: Sequence[str]) -> list[Finding]:
    """What the rules find in a comparison of several ranks."""
    rules = _rules("in_ranks", select, ignore) if len(peaks) > 1 else []
    return [finding for rule in rules for finding in rule.in_ranks(peaks)]


def _verdict(findings: Sequence[Finding], facts: Sequence[dict[str, Any]]) -> Verdict:
    if findings:
        return "findings"
    return "clean" if any(f["in_use"] or f["events"] for f in facts) else "undetermined"


def _rules(matcher: str, select: Sequence[str], ignore: Sequence[str]) -> list[Any]:
    from torchvet.rules import rules_with, wanted

    return [r for r in rules_with(matcher) if wanted(r.code, select, ignore)]


def _judge(
    rank: int, snapshot: Snapshot, rules: list[Any], limit: int | None, observer: Observer | None
) -> tuple[list[Finding], list[dict[str, Any]], list[NotChecked], RankPeak | None]:
    from torchvet.snapshots.memory import SnapshotMemory
    from torchvet.snapshots.ranks import peak_of

    memory = SnapshotMemory(snapshot, limit)
    findings = [finding for rule in rules for finding in rule.in_snapshot(memory)]
    if observer is not None:
        observer.snapshot(rank, memory)
    return findings, [facts_of(d) for d in memory.devices], list(_gaps(snapshot, memory)), peak_of(rank, memory)


def _ranked(finding: Finding, rank: int) -> Finding:
    import msgspec

    return msgspec.structs.replace(finding, rank=rank)


def _facts(seen: list[dict[str, Any]]) -> dict[str, Any]:
    """All devices' facts; `steps` also where every report has it."""
    counts = [s["steps"]["count"] for s in seen if s["steps"]["count"]]
    return {"snapshots": seen, **({"steps": max(counts)} if counts else {})}


def _gaps(snapshot: Snapshot, memory: Any) -> Iterator[NotChecked]:
    """What a snapshot without history, stacks or enough steps cannot show."""
    from torchvet.snapshots.growth import FEWEST

    name = Path(snapshot.path).name
    for device in memory.devices:
        where = f"{name}, device {device.device}" if len(memory.devices) > 1 else name
        events = len(device.lifetimes.trace)
        if not events:
            reason = (
                "no history was recorded: call torch.cuda.memory._record_memory_history() before the steps of interest"
            )
            yield NotChecked(check=f"peak, growth and lines of {where}", reason=reason)
            continue
        if not any(facts.place for facts in device.stacks):
            reason = "the history has no Python stacks (stacks='python' or 'all')"
            yield NotChecked(check=f"lines and categories of {where}", reason=reason)
        if device.growth is None:
            steps = len(device.phases.boundaries)
            reason = f"{count(steps, 'step')} recognised, {FEWEST} needed" if steps else "no steps were recognised"
            yield NotChecked(check=f"growth from step to step in {where}", reason=reason)
        unknown = sum(block.size for block in device.peak.older if device.stacks[block.stack].place is None)
        if unknown > device.lifetimes.peak // 2:
            share = percent(unknown / device.lifetimes.peak)
            reason = f"{share} of the peak is older than the recording, which has no lines for it"
            yield NotChecked(check=f"where older memory of {where} comes from", reason=reason)
