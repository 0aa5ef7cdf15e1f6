"""One run of a program, reduced to what runs are compared by."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from torchvet.analysis import growth_of
from torchvet.analysis.costs import Costs, costs
from torchvet.finding import Finding, Report
from torchvet.recording.records.base import Step, Window
from torchvet.recording.records.nonfinite import NonFinite
from torchvet.recording.records.training import Outcome, Unwatched
from torchvet.recording.records.verify import Losses, ThreadFailed
from torchvet.verifying.outputs import Outputs

if TYPE_CHECKING:
    from torchvet.recording import RankRecording, Recording


_ENOUGH_TIMES = 5


@dataclass(frozen=True)
class Wide:
    """A step in float64: its loss, or the norm of its gradients."""

    symptom: str
    size: float


@dataclass(frozen=True)
class Trial:
    """What a run showed."""

    findings: list[Finding]
    steps: int
    curve: list[float | None] = field(default_factory=list)
    """The loss of each backward pass, in order; None if it is not finite."""
    by_step: list[list[float | None]] = field(default_factory=list)
    """The same, by step."""
    gradients: list[float | None] = field(default_factory=list)
    """The norm of the gradients of each optimizer step, likewise."""
    wide: Wide | None = None
    """Of the first step that was not finite what it is in float64, if it is finite there."""
    rates: dict[str, float] = field(default_factory=dict)
    """Bytes per step of every name that grew."""
    names: dict[str, list[str]] = field(default_factory=dict)
    """The names that a finding is about, by the name of its holder."""
    graphs: dict[str, float] = field(default_factory=dict)
    """The part of `rates` that autograd graphs saved."""
    pinned: dict[str, float] = field(default_factory=dict)
    """The part of `rates` in storages beyond what the stored tensors show of them."""
    nodes: dict[str, float] = field(default_factory=dict)
    """Autograd nodes per step of every name that grew."""
    unexplained: float = 0.0
    """Bytes per step that grew without a name."""
    windows: int = 0
    """How many windows of steps recorded storages."""
    costs: Costs = field(default_factory=dict)
    """What lines cost in a step."""
    seconds_per_step: float | None = None
    seconds_before: float | None = None
    """What the unchanged program took in a run beside this one, where there was one."""
    failure: str = ""
    """Why the program failed; empty if it ended, or was `stopped` after the steps asked for."""
    stopped: bool = False
    outputs: Outputs = field(default_factory=dict)
    """What it printed and wrote."""
    sources: dict[str, str] = field(default_factory=dict)
    threads: dict[str, str] = field(default_factory=dict)
    """Messages of the exceptions that ended threads, by type."""
    elsewhere: bool = False
    """Whether the program took no step itself and has started other processes, which a trial does not observe."""
    missing: str = ""
    """What a run without faults lacks to be evidence of health."""

    @property
    def printed(self) -> str:
        """Its stdout."""
        return str(self.outputs.get("stdout", ""))


def _names(report: Report) -> dict[str, list[str]]:
    """The names that grew, by the holder of the finding that reports them."""
    found: dict[str, list[str]] = {}
    for row in report.part("growth").get("names") or []:
        if row["reported_as"] is not None:
            found.setdefault(row["reported_as"], []).append(row["name"])
    return found


def trial_of(recording: Recording, report: Report, outcome: Outcome, outputs: Outputs | None = None) -> Trial:
    """The trial of a recording, the report on it, how the program ended and what it printed and wrote."""
    trial = Trial(
        findings=report.findings,
        steps=outcome.ticks,
        names=_names(report),
        failure=_failure(outcome),
        stopped=outcome.how == "steps-reached",
        outputs=outputs or {},
        sources=recording.sources,
        threads={r.kind: r.message for rank in recording.ranks for r in rank.all(ThreadFailed)},
        missing=_missing(report),
        elsewhere=not outcome.ticks and _starts_others(recording),
    )
    # The program ended before it imported torch.
    if not recording.ranks:
        return trial
    rank = recording.ranks[0]
    rates, graphs, pinned, nodes = (defaultdict[str, float](float) for _ in range(4))
    for one in growth_of(rank).growths:
        name = one.holding.name
        rates[name] += one.bytes_per_step
        graphs[name] += one.graph_per_step
        pinned[name] += max(one.direct_per_step - one.visible_per_step, 0.0)
        nodes[name] += one.nodes_per_step
    return replace(
        trial,
        curve=[value for record in rank.all(Losses) for value in record.values],
        by_step=_by_step(rank.all(Losses)),
        gradients=[value for record in rank.all(Losses) for value in record.gradients],
        wide=_wide(rank),
        rates=rates,
        graphs=graphs,
        pinned=pinned,
        nodes=nodes,
        windows=len(rank.all(Window)),
        costs=costs(rank),
        unexplained=growth_of(rank).unexplained,
        seconds_per_step=_seconds_per_step(rank),
    )


def _by_step(records: Sequence[Losses]) -> list[list[float | None]]:
    """The losses of each step. Until it is known what makes the steps each pass has a record, the last of which has the
    gradients that were stepped with."""
    if not any(record.gradients for record in records):
        return [record.values for record in records if record.values]
    found: list[list[float | None]] = [[]]
    for record in records:
        found[-1] += record.values
        if record.gradients:
            found.append([])
    return [values for values in found if values]


def _wide(rank: RankRecording) -> Wide | None:
    """What the first failure is in float64, where nothing was rounded before."""
    # The first failure: what comes after it has lost its state.
    first = next(iter(rank.all(NonFinite)), None)
    if first is None or not first.exact or first.wide_size is None:
        return None
    return Wide(first.symptom, first.wide_size)


def _missing(report: Report) -> str:
    """What a report without faults lacks for a clean verdict; empty if it has faults or lacks nothing."""
    # With a fault the report has its evidence: that something grows needs less than that nothing does.
    if report.earned or report.worst() not in (None, "info"):
        return ""
    judged = report.facts["verdict"]
    return "; ".join(filter(None, (judged["reason"], judged["fix"])))


def _starts_others(recording: Recording) -> bool:
    return any(one.kind == "started" for rank in recording.ranks for one in rank.all(Unwatched))


def _seconds_per_step(rank: RankRecording) -> float | None:
    """The median step of the most frequent kind. The median ignores sampled steps, which take longer, and the start."""
    # A record of several steps has the time of all of them.
    steps = [s for s in rank.all(Step) if s.count == 1]
    kinds = Counter(s.kind for s in steps)
    if not kinds:
        return None
    times = [s.t for s in steps if s.kind == kinds.most_common(1)[0][0]]
    # The clock starts anew with another series of steps.
    apart = [later - earlier for earlier, later in pairwise(times) if later > earlier]
    return statistics.median(apart) if len(apart) >= _ENOUGH_TIMES else None


def _failure(outcome: Outcome) -> str:
    """Why the program failed; empty if it did not."""
    if outcome.how == "steps-reached" or outcome.status == 0:
        return ""
    return outcome.error or f"it ended with status {outcome.status} ({outcome.how})"
