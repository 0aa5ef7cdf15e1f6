"""The report on fixes that were tried: which are proven and by how much, which are refused and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import msgspec

from torchvet.finding import Finding, NotChecked, Report
from torchvet.fixing.rows import row
from torchvet.formatting import count
from torchvet.recording.reader import ENOUGH
from torchvet.verifying.curves import Agreement
from torchvet.verifying.search import Fix, Proof, Verified
from torchvet.verifying.trial import Trial
from torchvet.verifying.verdicts import Judgement, judge, remains

SPAWNED = "processes that the program starts (torchrun, multiprocessing with spawn) read the unchanged files"


@dataclass(frozen=True)
class Told:
    """What a report needs besides the search's result."""

    subject: dict[str, Any]
    before: Trial
    """The run of the unchanged program."""
    wanted: Sequence[Finding]
    """The findings of the codes that were asked for."""
    diff: str
    seed: int
    tolerance: float
    """The largest relative difference of losses that counts as equal."""


_ELSEWHERE = (
    "the program took no step itself: it trains in processes that it starts, and trials observe one process. Let one "
    "rank train in the program's own process, or see what `torchvet run` finds and fix that without --verify"
)


def undetermined(before: Trial, verified: Verified) -> str:
    """Why nothing could be judged; empty if something could."""
    if verified.proven:
        return ""
    # A program that fails may still have had fixes tried, on what ran before.
    if before.failure and not verified.refused:
        return f"the program failed: {before.failure}"
    if before.elsewhere and not before.failure:
        return _ELSEWHERE
    if before.steps < ENOUGH and not before.failure:
        return f"{before.steps} steps are too few to judge; ten or more are needed"
    return before.missing if not before.failure and not verified.refused else ""


def report_of(told: Told, verified: Verified) -> Report:
    """The findings of the unchanged program; those that the fixes remove are `proven`."""
    gone = also_gone(told, verified)
    # By identity: two equal findings of two lines may be told apart by nothing else.
    proven = {id(f) for f in (*(m.finding for m, _ in verified.proven), *(f for f, _ in gone))}
    findings = [msgspec.structs.replace(f, evidence="proven") if id(f) in proven else f for f in told.wanted]
    why = undetermined(told.before, verified)
    return Report(
        subject=told.subject,
        facts={"fix": _facts(told, verified, gone, proven)},
        findings=findings,
        verdict="undetermined" if why else "findings" if findings else "clean",
        not_checked=[NotChecked(check="the fixes", reason=why)] if why else not_shown(told.before, verified),
    )


def _facts(
    told: Told, verified: Verified, gone: Sequence[tuple[Finding, Judgement]], proven: set[int]
) -> dict[str, Any]:
    return {
        "verified": True,
        "runs": verified.runs,
        "seed": told.seed,
        "tolerance": told.tolerance,
        "steps": told.before.steps,
        "diff": told.diff,
        "written": [],
        "proven": [*starmap(proven_row, verified.proven)],
        "also_gone": [{**row(f), "before": j.before, "after": j.after} for f, j in gone],
        "refused": [{**row(m.finding), "reason": why} for m, why in verified.refused],
        "not_shown": [row(f) for f in told.wanted if _is_not_shown(f)],
        "advice": [row(f) for f in told.wanted if _is_advice(f) and id(f) not in proven],
    }


def _is_not_shown(finding: Finding) -> bool:
    return bool(finding.remedy.edits) and finding.evidence == "suspected"


def _is_advice(finding: Finding) -> bool:
    """Whether a finding without edits is worth a line."""
    return not finding.remedy.edits and (finding.severity != "info" or finding.evidence == "observed")


def not_shown(before: Trial, verified: Verified) -> list[NotChecked]:
    """What the runs could not show: of the proven fixes, and of what comes after the last step."""
    found = [NotChecked(check="fixes in other processes", reason=SPAWNED)] if verified.proven else []
    if before.stopped:
        unseen = "did not run with the fixes" if verified.proven else "were not looked at"
        reason = f"the runs were stopped after {count(before.steps, 'step')}: later steps {unseen}"
        found.append(NotChecked(check="the rest of the program", reason=reason))
    return found


def also_gone(told: Told, verified: Verified) -> list[tuple[Finding, Judgement]]:
    """Findings without a fix of their own that the proven fixes also remove."""
    if verified.final is None:
        return []
    # Those have a row of their own.
    tried = [id(m.finding) for m, _ in [*verified.proven, *verified.refused]]
    others = [f for f in told.wanted if id(f) not in tried and f.evidence == "observed"]
    judged = [(f, judge(f, told.before, verified.final)) for f in others if not remains(f, verified.final)]
    return [(f, j) for f, j in judged if j.gone]


def proven_row(fix: Fix, proof: Proof) -> dict[str, Any]:
    """A fix and its proof."""
    return {
        **row(fix.finding),
        "before": proof.judgement.before,
        "after": proof.judgement.after,
        "bytes_per_step": list(proof.judgement.bytes_per_step) if proof.judgement.bytes_per_step else None,
        "changes_results": fix.changes,
        "losses": losses(proof.agreement, proof.noise),
        "output": {**msgspec.to_builtins(proof.output), "differ": [str(one) for one in proof.output.differ]},
        "steps": list(proof.steps),
        "seconds_per_step": list(proof.seconds_per_step),
    }


def losses(agreement: Agreement, noise: float | None) -> dict[str, Any]:
    """How the loss curves agree. JSON has no infinity: null stands for finite against not finite."""
    return {
        "compared": agreement.compared,
        "finite": agreement.finite,
        "equal": agreement.equal,
        "largest_relative_difference": agreement.largest if agreement.largest != float("inf") else None,
        "first_different": agreement.first,
        "passes": list(agreement.lengths),
        "joined": list(agreement.joined) if agreement.joined != (0, 0) else None,
        "alike": agreement.alike,
        "last": [agreement.before, agreement.after],
        "between_runs_as_it_is": noise if noise != float("inf") else None,
    }
