"""A diagnosis that says what it was given; the variable TEST_VERDICT picks what it finds."""

import os
import time

from torchvet.finding import Finding, Remedy, Report
from torchvet.recording.records.base import Program
from torchvet.recording.records.training import Outcome


def diagnose(recording, select=(), ignore=(), memory_limit=None):
    rank = recording.ranks[0]
    outcome, program = rank.last(Outcome), rank.last(Program)
    wanted = os.environ.get("TEST_VERDICT", "clean")
    if wanted == "crash":
        raise RuntimeError("the diagnosis is broken")
    if wanted == "slow":
        open("diagnosing", "w").close()
        time.sleep(60)
    findings = []
    if wanted in ("error", "warning", "info"):
        findings.append(
            Finding(
                code="MEM101",
                name="graph-retained",
                severity=wanted,
                evidence="observed",
                message="m",
                location=None,
                cause="c",
                remedy=Remedy(summary="r"),
            )
        )
    facts = {
        "how": outcome.how, "status": outcome.status, "error": outcome.error, "ticks": outcome.ticks,
        "outcomes": len(rank.all(Outcome)), "damaged": rank.damaged,
        "argv": program.argv if program else None, "user_root": program.user_roots if program else None,
        "kept": recording.path is not None, "select": list(select), "ignore": list(ignore), "limit": memory_limit,
    }  # fmt: skip
    verdict = "findings" if findings else wanted
    return Report(
        subject={"kind": "run", "path": "p", "argv": []}, verdict=verdict, findings=findings, facts={"test": facts}
    )
