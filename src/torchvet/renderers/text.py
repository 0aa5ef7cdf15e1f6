"""Text for a terminal: the verdict first, then the findings, the facts, what was not checked, and what to type next."""

from __future__ import annotations

import shlex

from torchvet.finding import Finding, Report
from torchvet.renderers.page import Page, add_not_checked
from torchvet.renderers.places import shown_path
from torchvet.renderers.text_facts import add_facts
from torchvet.renderers.text_finding import add_finding, add_note
from torchvet.renderers.verdict import evidence, notes, serious, verdict

IN_FULL = 5
"""Findings shown whole; each of the others gets two lines, so that the page stays short."""
BRIEF, CODES = 12, 3
"""Findings shown in brief, and codes that `Next` offers to explain."""


def run_page(report: Report, color: bool, width: int) -> str:
    """The page of `torchvet run`. Paths below the working directory are shown relative to it."""
    page = Page(width)
    page.paragraph(verdict(report), "bold", most=3)
    if rests_on := evidence(report):
        page.paragraph(rests_on, "dim", most=2)
    add_findings(page, report)
    add_facts(page, report)
    add_rest(page, report)
    return page.text(color)


def add_findings(page: Page, report: Report) -> None:
    """Errors and warnings in full, notes in brief."""
    sources = report.facts.get("sources")
    for finding in serious(report)[:IN_FULL]:
        add_finding(page, finding, sources)
    _add_notes(page, report)


def findings_page(report: Report, findings: list[Finding], width: int) -> str:
    """Some findings of a report in full, as text: for a failure's message."""
    page = Page(width)
    for finding in findings:
        add_finding(page, finding, report.part("sources"))
    return page.text(color=False)


def add_rest(page: Page, report: Report) -> None:
    """What was not checked, and what to type next."""
    add_not_checked(page, report)
    _add_next(page, report)


def _add_notes(page: Page, report: Report) -> None:
    brief = serious(report)[IN_FULL:] + notes(report)
    if not brief:
        return
    page.heading("Also")
    for finding in brief[:BRIEF]:
        add_note(page, finding)
    page.more(len(brief) - BRIEF)


def _add_next(page: Page, report: Report) -> None:
    codes = list(dict.fromkeys(f.code for f in serious(report) + notes(report)))[:CODES]
    commands = [f"torchvet explain {code}" for code in codes]
    if fixable := [f for f in serious(report) if f.remedy.edits and not f.remedy.edits[0].path.startswith("<")]:
        commands.append(_fix_command(report, fixable))
    if recording := report.facts.get("recording"):
        commands.append(f"torchvet report {shlex.quote(shown_path(str(recording)))} -o report.json")
    if not commands:
        return
    page.heading("Next")
    for command in commands:
        page.verbatim(command, indent=2)


def _fix_command(report: Report, fixable: list[Finding]) -> str:
    """`fix --verify` for a script of one process, of what its run has shown; else `check --diff` on the first fixable
    file."""
    shown = list(dict.fromkeys(f.code for f in fixable if f.evidence == "observed"))
    if shown and _is_of_one_script(report):
        script, *arguments = report.subject["argv"]
        simulated = report.facts.get("simulated_by") or []
        own = ["--", *arguments] if arguments else []
        return shlex.join(["torchvet", "fix", shown_path(script), *shown, "--verify", *simulated, *own])
    path = fixable[0].remedy.edits[0].path
    there = [f for f in fixable if f.remedy.edits[0].path == path]
    unsafe = "" if all(f.remedy.safe for f in there) else " --unsafe-fixes"
    codes = ",".join(dict.fromkeys(f.code for f in there))
    return f"torchvet check --diff{unsafe} --select {codes} {shlex.quote(shown_path(path))}"


def _is_of_one_script(report: Report) -> bool:
    """Whether it is the run of a script in one process: `fix` runs no other in the same way."""
    argv = report.subject.get("argv") or []
    script = bool(argv) and str(argv[0]).endswith(".py")
    return script and report.subject.get("kind") == "run" and report.facts.get("rank") is None
