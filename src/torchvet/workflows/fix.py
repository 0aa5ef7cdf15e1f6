"""`torchvet fix` without --verify: checks the source as `check` does and fixes it. Runs nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchvet.errors import BadInput
from torchvet.workflows.fix_options import Asked, deliver, read, write
from torchvet.workflows.report_output import FINDINGS

if TYPE_CHECKING:
    from torchvet.finding import Finding, Report
    from torchvet.fixing.rounds import FixResult


def run(asked: Asked) -> int:
    """Do it. Gives the exit status; raises `BadInput` and click's usage errors."""
    asked.refuse()
    delivery = asked.delivery
    delivery.check()
    delivery.spare([Path(asked.script)])
    if not os.path.exists(asked.script):
        raise BadInput(f"{asked.script}: no such file")
    if os.path.isdir(asked.script):
        raise BadInput(f"{asked.script}: is a folder; give a script, or fix the folder with torchvet check --fix")
    if asked.verify:
        from torchvet.workflows.verify_fix import verify

        return verify(asked)
    return _fix(asked)


def _fix(asked: Asked) -> int:
    from torchvet.checking.checker import Checker
    from torchvet.fixing.files import difference, fix_bytes

    checker = Checker(asked.chosen(asked.delivery.configuration))
    data = read(asked.script)
    result = checker.check_bytes(asked.script, data)
    broken = next((f.message for f in result.findings if f.code == "SYN001"), None)
    if broken or (result.not_checked and not result.findings):
        raise BadInput(f"{asked.script}: {broken or result.not_checked[0].reason}")
    before, fixed, content = fix_bytes(asked.script, data, checker, asked.unsafe_fixes)
    if asked.apply and content != data:
        write({asked.script: (data, content)}, asked.keep_original)
    left = fixed.result.findings if asked.apply else result.findings
    report = _report(asked, result.findings, left, fixed, difference(before, fixed.document))
    deliver(report, asked)
    pending = not asked.apply and bool(report.facts["fix"]["diff"]) and not asked.delivery.exit_zero
    return FINDINGS if pending else asked.delivery.status(report)


def _report(asked: Asked, found: list[Finding], left: list[Finding], fixed: FixResult, diff: str) -> Report:
    from torchvet.finding import Report
    from torchvet.fixing.rows import row

    gone = [f for f in found if f not in left] if asked.apply else found
    facts: dict[str, Any] = {
        "verified": False,
        "again": [*asked.codes, *asked.again()],
        "diff": diff,
        "written": [asked.script] if asked.apply and diff else [],
        "mended": [row(f) for f in gone if _usable(f, asked)],
        "counts": dict(fixed.counts),
        "unsafe": [row(f) for f in left if f.remedy.edits and not _usable(f, asked)],
        "advice": [row(f) for f in left if not f.remedy.edits],
        "refused": [{"reason": text} for text in fixed.refused],
    }
    return Report(subject=asked.subject(), verdict="findings" if left else "clean", findings=left, facts={"fix": facts})


def _usable(finding: Finding, asked: Asked) -> bool:
    return bool(finding.remedy.edits) and (finding.remedy.safe or asked.unsafe_fixes)
