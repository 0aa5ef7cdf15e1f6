"""Fixes as text: which are proven or possible, measured before and after; which are not, and why; the diff."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from torchvet.finding import Report
from torchvet.renderers.page import Page, add_not_checked
from torchvet.renderers.places import shown_path
from torchvet.renderers.verdict import could_not_judge
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
    _add_rows(
        page, "Also gone after these fixes", facts.get("also_gone", []), lambda r: f"{r['before']}, then {r['after']}"
    )
    _add_rows(page, "Refused", [r for r in facts["refused"] if "code" in r], lambda r: str(r["reason"]))
    for row in facts["refused"]:
        if "code" not in row:
            page.paragraph(row["reason"], indent=2)
    not_shown = "The run did not show these, so that it can prove no fix; apply theirs without --verify"
    _add_rows(page, not_shown, facts.get("not_shown", []), _remedy)
    _add_rows(page, "Only with --unsafe-fixes, because the results change", facts.get("unsafe", []), _remedy)
    _add_rows(page, "No fix, only advice", facts["advice"], _remedy)
    _add_not_undone(page, facts.get("not_undone", []))
    _add_diff(page, facts["diff"])
    add_not_checked(page, report)
    _add_next(page, report)
    return page.text(color)


def headline(report: Report) -> str:
    """The outcome in one sentence."""
    facts = report.facts["fix"]
    if not facts["verified"]:
        return could_not_judge(report) if report.verdict == "undetermined" else _read_only(facts)
    runs = _runs(facts)
    if report.verdict == "undetermined":
        return f"{could_not_judge(report)}; {runs}"
    proven, refused = len(facts["proven"]), len(facts["refused"])
    if not proven and not refused:
        rest = len(facts["advice"]) + len(facts["not_shown"])
        below = f" that the run has shown; {count(rest, 'finding')} below" if rest else ""
        return f"Nothing to fix{below}; {runs}"
    written = "; written" if facts["written"] else ""
    return f"{proven} of {count(proven + refused, 'fix', 'fixes')} proven in {runs}{written}"


def _runs(facts: dict[str, Any]) -> str:
    """How often the program ran, and how long that took in all."""
    # A report of an earlier version does not know.
    took = f", {seconds(facts['run_seconds'])}" if facts.get("run_seconds") is not None else ""
    # A program that fails has fewer steps than the fixed one.
    most = max([facts["steps"], *(row["steps"][1] for row in facts["proven"])])
    least = f"{count(facts['steps'])} to " if facts["steps"] < most else ""
    return f"{count(facts['runs'], 'run')} of {least}{count(most, 'step')}{took}"


def _read_only(facts: dict[str, Any]) -> str:
    counts = facts["counts"]
    if not counts:
        rest = len(facts["unsafe"]) + len(facts["advice"])
        below = f"; {count(rest, 'finding')} below" if rest else ""
        return f"Nothing to fix that the source alone shows{below}"
    codes = ", ".join(sorted(counts))
    return f"{count(sum(counts.values()), 'finding')} {'fixed' if facts['written'] else 'can be fixed'}: {codes}"


def _add_proven(page: Page, row: dict[str, Any]) -> None:
    page.blank()
    page.paragraph(f"proven {row['code']} {row['name']}: {_place(row)}", "bold green", indent=2, hang=2, most=2)
    page.labelled("before", row["before"], 2)
    page.labelled("after", row["after"], 2)
    page.labelled("losses", _losses(row), 3)
    if any(row["output"][key] for key in ("compared", "unsteady", "skipped")):
        page.labelled("output", _output(row["output"]), 4)
    before, after = row["seconds_per_step"]
    if before and after:
        note = "medians of one run each, other load included: no proof"
        page.labelled("time", f"{seconds(before)} per step, then {seconds(after)} ({note})")


def _output(output: dict[str, Any]) -> str:
    """Losses that stay the same say nothing of a metric, nor of what is saved."""
    files = count(len([name for name in output["compared"] if name not in ("stdout", "stderr")]), "file")
    compared = f"{count(output['lines'], 'line')} printed or written, {files}"
    noise = [f"{count(lines, 'line')} of {name}" for name, lines in output["noise"].items()]
    rest = _names("; not compared, as two unchanged runs differ: ", [*output["unsteady"], *noise])
    rest += _names("; not compared, as losses differ in late digits or it was not read: ", output["skipped"])
    if output["differ"]:
        return f"{compared}: {'; '.join(output['differ'][:3])}{rest}"
    last = f", and the last digit of {count(output['rounded'], 'number')}" if output["rounded"] else ""
    return f"{compared}, the same but for times and sizes{last}{rest}"


def _names(title: str, names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{title}{', '.join(names[:3])}{more}" if names else ""


def _losses(row: dict[str, Any]) -> str:
    losses = row["losses"]
    compared = f"{count(losses['compared'], 'loss', 'losses')} compared"
    if joined := losses.get("joined"):
        passes = f"{count(joined[0], 'backward pass', 'backward passes')} became {count(joined[1])}"
        grown = losses["alike"] < losses["compared"]
        rest = f" (rounding that has grown: those of the first {count(losses['alike'], 'step')} agree)" if grown else ""
        compared = f"{passes}; sums of the losses of {count(losses['compared'], 'step')} compared{rest}"
    if losses["passes"][0] != losses["passes"][1]:
        before, after = losses["passes"]
        return f"changed on purpose: {count(before, 'backward pass', 'backward passes')} became {count(after)}"
    if not losses["compared"]:
        steps, after = row["steps"]
        ended = f"none to compare: the program ended after {count(steps, 'step')}, and now makes {count(after)}"
        return ended if steps < after else "none were observed; the program printed the same"
    if losses["equal"]:
        finite = losses.get("finite", losses["compared"])
        if finite < losses["compared"]:
            left = f", the other {finite:,} equal to the last bit" if finite else ""
            return f"{compared}, {losses['compared'] - finite:,} of them not finite in either run{left}"
        return f"{compared}, equal to the last bit"
    largest = losses["largest_relative_difference"]
    by = f"differ by up to {largest:.1g} of their size" if largest is not None else "differ in being finite"
    if not row["changes_results"]:
        noise = losses["between_runs_as_it_is"]
        return f"{compared}, {by}" + (f"; two unchanged runs differ by {noise:.1g}" if noise else "")
    before, after = (f"{x:.6g}" if x is not None else "not finite" for x in losses["last"])
    return f"changed on purpose, from pass {losses['first_different']} on: the last was {before}, is {after}"


def _add_rows(page: Page, title: str, rows: list[dict[str, Any]], describe: Callable[[dict[str, Any]], str]) -> None:
    if not rows:
        return
    page.heading(title)
    # One line may have several findings with one advice: ranks', or what two callers of it take.
    told = list(dict.fromkeys((f"{row['code']} {row['name']}: {_place(row)}", describe(row)) for row in rows))
    for place, text in told[:MOST]:
        page.paragraph(place, indent=2, hang=2, most=1)
        page.paragraph(text, indent=4, most=3)
    page.more(len(told) - MOST)


def _add_not_undone(page: Page, acts: list[str]) -> None:
    """What the runs did beyond the files that are restored."""
    if not acts:
        return
    page.heading("What the program did in its runs that is not undone")
    for act in acts[:MOST]:
        page.paragraph(act, indent=2, hang=2, most=2)
    page.more(len(acts) - MOST)


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
    again = facts.get("again", [])
    if not facts["verified"]:
        words += again
        page.verbatim(shlex.join([*words, "--verify"]), indent=2)
        if by_source:
            page.paragraph("runs the program and fixes the faults that it shows", indent=4)
        else:
            page.verbatim(shlex.join([*words, "--apply"]), indent=2)
        return
    codes = dict.fromkeys(row["code"] for row in facts["proven"])
    again += ["--unsafe-fixes"] if facts.get("needs_unsafe_fixes") and "--unsafe-fixes" not in again else []
    arguments = given[2 if module else 1 :]
    own = ["--", *arguments] if arguments else []
    page.verbatim(shlex.join([*words, *codes, "--verify", "--apply", *again, *own]), indent=2)
