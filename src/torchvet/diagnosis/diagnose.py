"""Asks the rules what a recording shows, joins what they say, and puts it in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchvet.analysis import growth_of
from torchvet.analysis.facts import facts_of, overhead_of
from torchvet.diagnosis import observed, ranks
from torchvet.diagnosis.correlation import joined
from torchvet.diagnosis.dry_run import facts_of as sizes_of
from torchvet.diagnosis.dry_run import with_parts
from torchvet.diagnosis.out_of_memory import explained
from torchvet.diagnosis.timed import timed
from torchvet.diagnosis.verdicts import judge
from torchvet.finding import SEVERITIES, Finding, NotChecked, Report
from torchvet.formatting import count
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Census
from torchvet.recording.records.training import Unchecked
from torchvet.rules import Rule, all_rules, wanted
from torchvet.rules.memory.mem118_growth_unattributed.rule import GrowthUnattributed
from torchvet.rules.shared.exhaustion import exhaustion_of
from torchvet.rules.shared.growth_rule import GrowthRule
from torchvet.rules.shared.joint_growth import together

_EXCERPT = 2
"""Source lines kept before and after a location."""
_SAME_BYTES = 0.5
"""Share of growth without a name that another finding must speak of to be about the same memory."""


def diagnose(
    recording: Recording,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    memory_limit: int | None = None,
) -> Report:
    """The report on a recording. `select` and `ignore` are prefixes of codes; `memory_limit` (bytes) replaces the
    recorded one for forecasts."""
    if memory_limit is not None:
        recording = recording.limited(memory_limit)
    # Before any rule is asked: steps of an earlier start must not be added to the last one's.
    recording, earlier = ranks.last_start(with_parts(recording))
    rules = [r for r in all_rules() if wanted(r.code, select, ignore)]
    # Before processes are merged, as the choice is one within a process.
    found = _most_specific([(r, f) for r in rules for f in r.in_recording(recording)])
    findings = observed.once(recording, _unattributed(recording, found))
    failures, unread = explained(recording, rules)
    # After the join, which may have given growth its name.
    findings, reported = together(recording, joined(recording, findings, rules), rules)
    findings = ranks.merged(recording, timed(recording, [*findings, *failures]))
    findings = sorted(findings, key=gravest_first)
    # Last: what was found decides what the verdict may leave open.
    judged = judge(recording, findings, growth=any(isinstance(r, GrowthRule) for r in rules))
    shown = ranks.shown(recording, findings)
    facts = _facts(recording, findings, shown) if shown is not None else {}
    if facts:
        facts["verdict"] = judged.facts()
        facts.update(ranks.restart_facts(earlier))
    if "growth" in facts and shown is not None and reported:
        facts["growth"]["names"] = _names(shown, reported)
    return Report(
        subject=_subject(recording),
        verdict=judged.verdict,
        findings=findings,
        not_checked=list(dict.fromkeys([*_not_checked(recording), *judged.gaps, *unread])),
        facts=facts,
        overhead=overhead_of(shown) if shown is not None else {},
    )


def _most_specific(found: list[tuple[Rule, Finding]]) -> list[Finding]:
    """Of several growth rules that speak of one holder, the one that knows its mechanism best; likewise of a failed
    step: see `Rule.specialises`."""
    # By rule, rank and step: the gravest of what the more special rules say of it.
    special: dict[tuple[str, int | None, int | None], int] = {}
    for rule, finding in found:
        if rule.specialises:
            step = (rule.specialises, finding.rank, finding.measured.steps)
            special[step] = max(special.get(step, 0), SEVERITIES.index(finding.severity))
    found = [
        (r, f) for r, f in found if special.get((r.code, f.rank, f.measured.steps), -1) < SEVERITIES.index(f.severity)
    ]
    best: dict[Any, tuple[tuple[int, float], Finding]] = {}
    others: list[Finding] = []
    for rule, finding in found:
        if not isinstance(rule, GrowthRule) or finding.holder is None:
            others.append(finding)
            continue
        key = (finding.rank, tuple(finding.holder.path))
        # The mechanism decides, and bytes among equals.
        weight = (rule.specificity, finding.measured.bytes_per_step or 0)  # processes may have the same holder
        if key not in best or weight > best[key][0]:
            best[key] = (weight, finding)
    return others + [finding for _, finding in best.values()]


def gravest_first(finding: Finding) -> tuple[int, bool, float, str]:
    """The order of findings in a report."""
    return (
        -SEVERITIES.index(finding.severity),
        # `False` sorts first: what was seen stands above what was only suspected.
        finding.evidence == "suspected",
        -(finding.measured.bytes_per_step or finding.measured.bytes or 0),
        finding.code,
    )


def _subject(recording: Recording) -> dict[str, Any]:
    # A child's command line is none that the user has given.
    program = next((r.program for r in recording.ranks if r.program is not None and not r.child), None)
    subject: dict[str, Any] = {"kind": "run"}
    if program is not None:
        subject.update(path=program.path, argv=program.argv)
    if members := recording.members:
        subject["ranks"] = [one.rank for one in members]
    return subject


def _not_checked(recording: Recording) -> list[NotChecked]:
    found: list[NotChecked] = []
    for rank in recording.ranks:
        found += [NotChecked(check=u.check, reason=u.reason) for u in rank.all(Unchecked)]
        cut = [c for c in rank.all(Census) if not c.complete]
        if cut:
            reason = f"the search for holders was ended after {cut[-1].seconds:.1f} s"
            found.append(NotChecked(check="some names", reason=reason))
        if rank.damaged:
            check = f"{count(rank.damaged, 'line')} of rank {rank.rank}"
            found.append(NotChecked(check=check, reason=rank.unreadable))
    return [*found, *observed.gaps(recording)]


def _unattributed(recording: Recording, findings: list[Finding]) -> list[Finding]:
    """Without growth that no name explains, where what else was found speaks of the same bytes: a cycle, or what only
    C++ holds, has no name in Python either; a sparse gradient has one, and is not among the names that grow."""
    named = {tuple(g.holding.path) for rank in recording.ranks for g in growth_of(rank).growths}
    told: dict[int | None, float] = {}
    for finding in findings:
        holder = finding.holder
        other = holder is None or holder.kind in ("cycle", "ctx", "native") or tuple(holder.path) not in named
        if other and finding.code != GrowthUnattributed.code:
            told[finding.rank] = told.get(finding.rank, 0.0) + (finding.measured.bytes_per_step or 0.0)
    return [
        f
        for f in findings
        if f.code != GrowthUnattributed.code or told.get(f.rank, 0.0) < _SAME_BYTES * (f.measured.bytes_per_step or 0.0)
    ]


def _without_a_word(rank: RankRecording, findings: list[Finding]) -> float:
    """Bytes per step that grow and that no finding covers, not even one about a cycle without a name."""
    told = any(f.holder is not None and f.holder.kind in ("cycle", "ctx", "native") for f in findings)
    return max(0.0, growth_of(rank).unexplained - (growth_of(rank).unreached if told else 0.0))


def _facts(recording: Recording, findings: list[Finding], rank: RankRecording) -> dict[str, Any]:
    """The facts of the rank that is shown, and of the whole run."""
    facts = facts_of(rank, growth_of(rank))
    # Findings of rules may cover more than names do: a cycle has no name.
    rest = _without_a_word(rank, findings)
    if rest < growth_of(rank).unexplained:
        share = 1 - rest / growth_of(rank).measured
        facts["growth"].update(explained_share=share, unexplained_bytes_per_step=rest)
    forecast = exhaustion_of(rank, recording)
    if forecast.rate > 0:
        facts["forecast"] = {"bytes_per_step": forecast.rate, "bytes_left": forecast.left, "step": forecast.step}
    facts.update(sizes_of(rank))
    facts.update(observed.processes(recording))
    facts.update(ranks.rank_facts(recording, rank))
    facts["recording"] = str(recording.path) if recording.path is not None else None
    facts["sources"] = _excerpts(recording, findings)
    return facts


def _names(rank: RankRecording, reported: Mapping[str, str]) -> list[dict[str, Any]]:
    """Every name that grows, and the holder of the finding that speaks of it."""
    return [
        {"name": g.holding.name, "bytes_per_step": g.bytes_per_step, "reported_as": reported.get(g.holding.name)}
        for g in growth_of(rank).growths
    ]


def _excerpts(recording: Recording, findings: list[Finding]) -> dict[str, Any]:
    """The lines around every location: {path: {"start": first line, "lines": [...]}}, one range a file."""
    wanted: dict[str, list[int]] = {}
    for place in (finding.location for finding in findings):
        if place is not None and place.path in recording.sources:
            wanted.setdefault(place.path, []).append(place.line)
    found = {}
    for path, numbers in wanted.items():
        lines = recording.sources[path].splitlines()
        start = max(1, min(numbers) - _EXCERPT)
        end = min(len(lines), max(numbers) + _EXCERPT)
        found[path] = {"start": start, "lines": lines[start - 1 : end]}
    return found
