"""One run of a program, as far as runs are held against each other."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from torchvet.finding import Finding, Report
from torchvet.recording.costs import Costs, costs
from torchvet.recording.records import Step, Window
from torchvet.recording.training_records import Outcome
from torchvet.recording.verify_records import Losses, ThreadFailed

if TYPE_CHECKING:
    from torchvet.recording import Recording


_ENOUGH_TIMES = 5


@dataclass(frozen=True)
class Trial:
    """What a run showed.

    `curve` has the loss of each backward pass in order, None for what is not finite. `rates` are the bytes, `graphs`
    those of them that autograd graphs saved, `pinned` those of storages beyond what their tensors show, `nodes` the
    autograd nodes per step of every name that grew, `names` those that a finding speaks of, by its holder's name,
    `unexplained` the bytes per step that grew without a name, and `windows` says in how many stretches storages were
    noted, `costs` what lines cost in a step. `failure` is empty where the program came to its end or to the last step
    asked for, where it was `stopped`; `printed` is its stdout. `threads` are the exceptions that threads of the program
    ended in, by type. `missing` says what a run without faults lacks to be evidence of health.
    """

    findings: list[Finding]
    steps: int
    curve: list[float | None] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    graphs: dict[str, float] = field(default_factory=dict)
    pinned: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, float] = field(default_factory=dict)
    unexplained: float = 0.0
    windows: int = 0
    costs: Costs = field(default_factory=dict)
    seconds_per_step: float | None = None
    failure: str = ""
    stopped: bool = False
    printed: str = ""
    sources: dict[str, str] = field(default_factory=dict)
    threads: dict[str, str] = field(default_factory=dict)
    missing: str = ""


def _names(report: Report) -> dict[str, list[str]]:
    """The names that grew by the holder of the finding that speaks of them."""
    found: dict[str, list[str]] = {}
    for row in (report.facts.get("growth") or {}).get("names") or []:
        if row["reported_as"] is not None:
            found.setdefault(row["reported_as"], []).append(row["name"])
    return found


def trial_of(recording: Recording, report: Report, outcome: Outcome, printed: str = "") -> Trial:
    """The trial that a recording and the report on it come to."""
    growth = recording.ranks[0].growth if recording.ranks else None
    rates: dict[str, float] = {}
    graphs: dict[str, float] = {}
    pinned: dict[str, float] = {}
    nodes: dict[str, float] = {}
    for one in growth.growths if growth is not None else ():
        nodes[one.holding.name] = nodes.get(one.holding.name, 0.0) + one.nodes_per_step
        hidden = max(one.direct_per_step - one.visible_per_step, 0.0)
        pinned[one.holding.name] = pinned.get(one.holding.name, 0.0) + hidden
        graphs[one.holding.name] = graphs.get(one.holding.name, 0.0) + one.graph_per_step
        rates[one.holding.name] = rates.get(one.holding.name, 0.0) + one.bytes_per_step
    return Trial(
        findings=report.findings, steps=outcome.ticks, names=_names(report),
        curve=[v for rank in recording.ranks[:1] for r in rank.all(Losses) for v in r.values],
        rates=rates, graphs=graphs, pinned=pinned, nodes=nodes,
        windows=len(recording.ranks[0].all(Window)) if recording.ranks else 0,
        costs=costs(recording.ranks[0]) if recording.ranks else {},
        unexplained=growth.unexplained if growth is not None else 0.0,
        seconds_per_step=_seconds_per_step(recording),
        failure=_failure(outcome), stopped=outcome.how == "steps-reached", printed=printed, sources=recording.sources,
        threads={r.kind: r.message for rank in recording.ranks for r in rank.all(ThreadFailed)},
        missing=_missing(report),
    )  # fmt: skip


def _missing(report: Report) -> str:
    """What a report without faults lacks for a clean verdict; empty where there are faults or it lacks nothing."""
    if report.earned or report.worst() not in (None, "info"):
        return ""
    judged = report.facts["verdict"]
    return "; ".join(filter(None, (judged["reason"], judged["fix"])))


def _seconds_per_step(recording: Recording) -> float | None:
    """The median step of the kind that there are most of: what a window looked at, or the start, counts as one."""
    steps = [s for rank in recording.ranks[:1] for s in rank.all(Step) if s.count == 1]
    kinds = Counter(s.kind for s in steps)
    if not kinds:
        return None
    times = [s.t for s in steps if s.kind == kinds.most_common(1)[0][0]]
    apart = [later - earlier for earlier, later in pairwise(times) if later > earlier]
    return statistics.median(apart) if len(apart) >= _ENOUGH_TIMES else None


def _failure(outcome: Outcome) -> str:
    """What ended a program that did not come to its end; empty where it did."""
    if outcome.how == "steps-reached" or outcome.status == 0:
        return ""
    return outcome.error or f"it ended with status {outcome.status} ({outcome.how})"
