"""GREEN: does the remedy that torchvet has remove the fault? torchvet's word is not taken for it.

Where the finding has edits, ``torchvet fix --verify --apply`` fixes a copy of the case's folder. The fix is *proven*
if torchvet says so, the tool does not find the fault in what was written, and that program by itself ends well and
prints the numbers that the faulty one prints, unless torchvet has said that the fix changes them. They are compared up
to where the faulty program breaks off or prints what is no number.
"""

from __future__ import annotations

import math
import re
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from casebook import report
from casebook.case import SEVERITIES, Case
from casebook.program import Program, python
from casebook.run import MEMORY_LIMIT, Means, Run, bare, started, vetted
from casebook.score import Fix, Observation

STEPS = "1000"
"""More steps than any program of the casebook takes."""

TOLERANCE = 1e-4
"""The relative difference of two numbers that torchvet's own proof allows."""

_NUMBER = re.compile(r"(?<![\w.])[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|nan|inf)(?![\w.])", re.IGNORECASE)


def fix(case: Case, faulty: Observation, means: Means) -> Fix:
    """Have the faulty program fixed, and look."""
    said = faulty.vetted.report.findings if faulty.vetted.report else []
    if not any(f.remedy and f.remedy.edits for f in said if f.code == case.expect.code):
        return Fix("no edit")
    verb, *options = case.expect.command
    if verb not in ("run", "check"):
        return Fix("not verifiable", f"`fix --verify` runs programs as `run` does, not as `{verb}`")
    if "--nproc" in options:
        return Fix("not verifiable", "`fix --verify` observes one process, and the case has several ranks")
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept, case.name)
        shutil.copytree(case.built, folder, ignore=shutil.ignore_patterns("__pycache__"))
        copy = Program(folder, "faulty")
        run = fixed(copy, case.expect.argv, options, means.tool)
        if run.report is None:
            return Fix("not verifiable", run.complaint)
        facts = run.report.facts["fix"]
        others = {row["code"] for row in facts["proven"]} - {case.expect.code}
        own = any(row["code"] == case.expect.code for row in facts["proven"])
        if not own and not any(row["code"] == case.expect.code for row in facts["also_gone"]):
            unseen = verb == "check" and not facts["refused"]
            return Fix("not verifiable" if unseen else "refused", why_refused(case.expect.code, run.report))
        alone = bare(copy, case.expect.argv, case.expect.command, means.interpreter)
        after = vetted(copy, case.expect.argv, means.tool, case.expect.command)
    changes = any(row["changes_results"] for row in facts["proven"])
    wrong = what_is_wrong(case, after) or what_differs(faulty.bare, alone, changes)
    if wrong:
        return Fix("disproved", wrong)
    by = [] if own else [f"by the fix of {', '.join(sorted(others))}"]
    return Fix("proven", ", ".join([*by, *(["the numbers change"] if changes else [])]))


def fixed(program: Program, argv: Sequence[str], options: Sequence[str], tool: str) -> Run:
    """Run ``torchvet fix --verify --apply`` on a program that may be changed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "report.json")
        run = started(
            [
                *(shlex.split(tool) or python("-m", "torchvet")),
                *("fix", *program.target, "--verify", "--apply", "--unsafe-fixes", "--steps", STEPS, "--quiet"),
                *("--memory-limit", MEMORY_LIMIT, "-o", str(out), *options, "--", *argv),
            ],
            program.folder,
        )
        return Run(run.status, run.stdout, report.read(out) if out.exists() else None, run.complaint)


def why_refused(code: str, said: report.Report) -> str:
    """Why a fix was not proven, in torchvet's words."""
    facts: dict[str, Any] = said.facts["fix"]
    reasons: list[str] = [row["reason"] for row in facts["refused"] if row["code"] == code]
    if not reasons and any(row["code"] == code for row in facts["not_shown"]):
        reasons = ["suspected in the source, not seen at work in the run"]
    found = [f for f in said.findings if f.code == code]
    if not reasons and not any(f.remedy and f.remedy.edits for f in found):
        reasons = [f"{'found without an edit' if found else 'not found'} in the run of the verification"]
    return (reasons or [gap["reason"] for gap in said.not_checked] or ["no reason given"])[0]


def what_is_wrong(case: Case, after: Run) -> str:
    """What the tool still says of what it has fixed, at warning or above, or as gravely as of the fault where that is
    mild; empty where nothing."""
    if after.report is None:
        return f"the fixed program has no report: {after.complaint}"
    grave = SEVERITIES[min(SEVERITIES.index(case.expect.severity), SEVERITIES.index("warning")) :]
    still = [f for f in after.report.findings if f.code == case.expect.code and f.severity in grave]
    return f"still there: {still[0]}" if still else ""


def what_differs(before: Run, after: Run, changes: bool) -> str:
    """What a fixed program does by itself that it should not, beside the faulty one; empty where nothing."""
    if after.status:
        return f"the fixed program: {after.complaint}"
    lines = before.stdout.splitlines()
    # The last words of a program that fails are about its failure.
    return "" if changes else difference(lines[:-1] if before.status else lines, after.stdout.splitlines())


def difference(before: Sequence[str], after: Sequence[str]) -> str:
    """The first line whose numbers differ, up to where the first text ends or has a number that is none."""
    for number, (was, now) in enumerate(zip_longest(before, after), start=1):
        if was is None or not all(map(_is_finite, _NUMBER.findall(was))):
            return ""
        if now is None or not agree(was, now):
            return f"line {number} of what it prints: {now!r} in the place of {was!r}"
    return ""


def agree(before: str, after: str) -> bool:
    """Whether two lines say the same, their numbers but for the tolerance and one unit of the last printed place."""
    if before == after:
        return True
    numbers = list(zip_longest(_NUMBER.findall(before), _NUMBER.findall(after)))
    words = _NUMBER.sub("#", before).split() == _NUMBER.sub("#", after).split()
    return words and all(was and now and _near(was, now) for was, now in numbers)


def _near(before: str, after: str) -> bool:
    mantissa, _, exponent = before.lower().partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    places = unit if "." in mantissa else 0.0
    return abs(float(before) - float(after)) <= TOLERANCE * abs(float(before)) + places * 1.01


def _is_finite(number: str) -> bool:
    return math.isfinite(float(number))
