"""What was made of a trace, at its own times, so that it can be looked at beside it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchvet.formatting import picked
from torchvet.traces.intervals_for_export import stretches_of

if TYPE_CHECKING:
    from torchvet.exporting.chrome import Chrome
    from torchvet.finding import Finding, Report
    from torchvet.readers.trace_facts import RankTrace

STEPS, _PHASES, _IDLE, FINDINGS = 1, 2, 3, 4


class Shown(NamedTuple):
    """What is to be known of a rank when the findings come: its number, its process, when its steps begin and end."""

    rank: int | None
    process: int
    start: float
    end: float
    base: int | None


def add_rank(chrome: Chrome, rank: RankTrace) -> Shown | None:
    """Add a process for a rank: its file is read once more, since a digest has no times. None for one without steps."""
    found = stretches_of(Path(rank.path))
    if found is None:
        return None
    whose = f"rank {rank.rank}" if rank.rank is not None else Path(rank.path).name
    window, painted = found.window, found.painted
    threads = {STEPS: f"steps (from: {window.found_by})", _PHASES: "phases of the host"}
    threads |= {_IDLE: f"idle time of {found.device}"} if found.device else {}
    threads[FINDINGS] = "findings"
    chrome.begin(f"torchvet: {whose}", threads)
    for step in window.every:
        chrome.slice(STEPS, f"step {step.number}" + (", apart" if step.apart else ""), step.start, step.end)
    for name, start, end in zip(painted.names, painted.starts, painted.ends, strict=True):
        chrome.slice(_PHASES, name, start, end)
    for gap in found.gaps:
        reason = gap.reason if found.trusted else "not judged, the clocks of host and device disagree"
        call = gap.call.name if gap.call is not None else None
        chrome.slice(_IDLE, f"idle: {reason}", gap.start, gap.end, phase=gap.phase or None, waited_in=call)
    return Shown(rank.rank, chrome.process, window.start, window.end, found.base)


def add_findings(chrome: Chrome, shown: Iterable[Shown], report: Report) -> None:
    """Each finding as a slice over the steps that it holds for, in its rank; in the first where it is of them all."""
    ranks = list(shown)
    for finding in report.findings:
        whose = [r for r in ranks if finding.rank is not None and r.rank == finding.rank] or ranks[:1]
        for rank in whose:
            _add_finding(chrome, rank, finding)


def _add_finding(chrome: Chrome, rank: Shown, finding: Finding) -> None:
    title = f"{finding.code} {finding.severity}: {finding.message}"
    said = {"cause": finding.cause, "remedy": finding.remedy.summary, **picked(finding.location, "path", "line")}
    said["seconds_per_step"] = finding.measured.seconds_per_step
    chrome.slice(FINDINGS, title, rank.start, rank.end, rank.process, **said)
