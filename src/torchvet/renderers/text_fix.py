"""Mends as text: which were proven or can be made, measured before and after; which were not, and why; the diff."""

from __future__ import annotations

import shlex
from typing import Any

from torchvet.finding import Report
from torchvet.renderers.gaps import add_not_checked
from torchvet.renderers.page import Page
from torchvet.renderers.text_finding import shown_path
from torchvet.renderers.wording import count, seconds

MOST = 12
"""Rows shown of each kind; JSON has all of them."""


def fix_page(report: Report, color: bool, width: int) -> str:
    """The page of `torchvet fix`."""
    facts = report.facts["fix"]
    page = Page(width)
    page.paragraph(headline(report), "bold", most=3)
    for row in facts.get("proven", []):
        _add_proven(page, row)
    _add_rows(page, "Gone with them", facts.get("also_gone", []), lambda r: f"{r['before']}, then {r['after']}")
    _add_rows(page, "Refused", [r for r in facts["refused"] if "code" in r], lambda r: str(r["reason"]))
    for row in facts["refused"]:
        if "code" not in row:
            page.paragraph(row["reason"], indent=2)
    unseen = facts.get("not_shown", [])
    _add_rows(page, "Not shown by the run, so that nothing can be proven: mended without --verify", unseen, _remedy)
    _add_rows(page, "Only with --unsafe-fixes, since it changes results", facts.get("unsafe", []), _remedy)
    _add_rows(page, "No mend, only advice", facts["advice"], _remedy)
    _add_diff(page, facts["diff"])
    add_not_checked(page, report)
    _add_next(page, report)
    return page.text(color)


def headline(report: Report) -> str:
    """One sentence: what came of it."""
    facts = report.facts["fix"]
    if report.verdict == "undetermined":
        return f"Could not judge: {report.not_checked[0].reason}"
    if not facts["verified"]:
        return _read_only(facts)
    proven, refused = len(facts["proven"]), len(facts["refused"])
    runs = f" in {count(facts['runs'], 'run')} of {count(facts['steps'], 'step')}"
    if not proven and not refused:
        rest = len(facts["advice"]) + len(facts["not_shown"])
        return (
            "Nothing to mend that the run has shown" + f"; {count(rest, 'finding')} below"
            if rest
            else "Nothing to mend"
        )
    told = f"{proven} of {count(proven + refused, 'mend')} proven{runs}"
    return f"{told}; written" if facts["written"] else told


def _read_only(facts: dict[str, Any]) -> str:
    counts = facts["counts"]
    if not counts:
        rest = len(facts["unsafe"]) + len(facts["advice"])
        below = f"; {count(rest, 'finding')} below" if rest else ""
        return f"Nothing to mend by what the source alone shows{below}"
    codes = ", ".join(sorted(counts))
    return f"{count(sum(counts.values()), 'finding')} {'mended' if facts['written'] else 'can be mended'}: {codes}"


def _add_proven(page: Page, row: dict[str, Any]) -> None:
    page.blank()
    page.paragraph(f"proven {row['code']} {row['name']}: {_place(row)}", "bold green", indent=2, hang=2, most=2)
    page.labelled("before", row["before"], 2)
    page.labelled("after", row["after"], 2)
    page.labelled("losses", _losses(row), 3)
    before, after = row["seconds_per_step"]
    if before and after:
        page.labelled("time", f"{seconds(before)} per step, then {seconds(after)} (medians; observed)")


def _losses(row: dict[str, Any]) -> str:
    losses = row["losses"]
    compared = f"{count(losses['compared'], 'loss', 'losses')} compared"
    if losses["passes"][0] != losses["passes"][1]:
        before, after = losses["passes"]
        return f"changed on purpose: {count(before, 'backward pass', 'backward passes')} became {count(after)}"
    if not losses["compared"]:
        return "none was heard: the program printed the same"
    if losses["equal"]:
        return f"{compared}, equal to the last bit"
    largest = losses["largest_relative_difference"]
    by = f"differ by up to {largest:.1g} of their size" if largest is not None else "differ in being finite"
    if not row["changes_results"]:
        noise = losses["between_runs_as_it_is"]
        return f"{compared}, {by}" + (f"; two runs as it is differ by {noise:.1g}" if noise else "")
    before, after = (f"{x:.6g}" if x is not None else "not finite" for x in losses["last"])
    return f"changed on purpose, from pass {losses['first_different']} on: the last was {before}, is {after}"


def _add_rows(page: Page, title: str, rows: list[dict[str, Any]], tell: Any) -> None:
    if not rows:
        return
    page.heading(title)
    for row in rows[:MOST]:
        page.paragraph(f"{row['code']} {row['name']}: {_place(row)}", indent=2, hang=2, most=1)
        page.paragraph(tell(row), indent=4, most=3)
    if len(rows) > MOST:
        page.paragraph(f"and {len(rows) - MOST} more; JSON has all of them", indent=2)


def _remedy(row: dict[str, Any]) -> str:
    return str(row["remedy"])


def _place(row: dict[str, Any]) -> str:
    return f"{shown_path(row['path'])}:{row['line']}" if row["path"] else "no line"


def _add_diff(page: Page, diff: str) -> None:
    if not diff:
        return
    page.blank()
    for line in diff.splitlines():
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        page.verbatim(line, style)


def _add_next(page: Page, report: Report) -> None:
    facts = report.facts["fix"]
    by_source = not facts["diff"] and not facts["verified"]
    if facts["written"] or not (facts["diff"] or by_source):
        return
    module, given = report.subject["module"], report.subject["argv"]
    words = ["torchvet", "fix", *(given[:2] if module else [shown_path(str(report.subject["path"]))])]
    page.heading("Next")
    if not facts["verified"]:
        page.verbatim(shlex.join([*words, "--verify"]), indent=2)
        if by_source:
            page.paragraph("runs the program, and mends what is seen at work", indent=4)
        else:
            page.verbatim(shlex.join([*words, "--apply"]), indent=2)
        return
    codes = dict.fromkeys(row["code"] for row in facts["proven"])
    unsafe = ["--unsafe-fixes"] if facts.get("needs_unsafe_fixes") else []
    arguments = given[2 if module else 1 :]
    own = ["--", *arguments] if arguments else []
    page.verbatim(shlex.join([*words, *codes, "--verify", "--apply", *unsafe, *own]), indent=2)
