"""A check as a list for a terminal: a line per finding, the source line under it, and what to do, once per file.

    train.py:12:5: MEM101 error `losses` keeps every step's graph
      | losses.append(loss)
      = append `loss.item()`

Written without rich, which takes longer to load than a small check takes.
"""

from __future__ import annotations

from typing import Any

from torchvet.finding import SEVERITIES, Finding, NotChecked, Report
from torchvet.renderers.wording import count, printable

_COLORS = {"error": "1;31", "warning": "1;33", "info": "1;36", "path": "1", "dim": "2", "good": "1;32"}
UNCHECKED = 20
"""Entries of what was not checked that are shown; JSON has all of them."""


class Ink:
    """Writes in colors, or without."""

    def __init__(self, color: bool) -> None:
        self.color = color

    def __call__(self, style: str, text: str) -> str:
        """A foreign text in a style, its control characters escaped."""
        text = printable(text)
        return f"\x1b[{_COLORS[style]}m{text}\x1b[0m" if self.color and text else text


def listing(report: Report, color: bool = False, width: int = 100) -> str:
    """The findings, what was not checked, and a summary."""
    ink = Ink(color)
    lines = report.part("lines")
    out: list[str] = []
    advised: set[tuple[str, str, str]] = set()
    for finding in report.findings:
        at = finding.location
        path = at.path if at is not None else ""
        out.append(_head(finding, ink))
        if at is not None and (text := (lines.get(path) or {}).get(str(at.line), "").strip()):
            out.append(f"  {ink('dim', '|')} {ink('dim', _cropped(text, width - 4 if width else len(text)))}")
        advice = (path, finding.code, finding.remedy.summary)
        if finding.remedy.summary and advice not in advised:
            advised.add(advice)
            out.append(f"  {ink('dim', '=')} {printable(finding.remedy.summary)}{ink('dim', _fixable(finding))}")
    out += _not_checked(report.not_checked, ink)
    return "\n".join([*out, summary(report, ink)]) + "\n"


def statistics(report: Report, color: bool = False) -> str:
    """How often each code was found, the most frequent first."""
    ink = Ink(color)
    names = {f.code: (f.name, f.severity) for f in report.findings}
    counted = sorted(report.facts.get("statistics", {}).items(), key=lambda c: (-c[1], c[0]))
    digits = max((len(str(n)) for _, n in counted), default=1)
    rows = []
    for code, number in counted:
        name, severity = names[code]
        rows.append(f"{number:>{digits}}  {code}  {ink(severity, f'{severity:<7}')}  {name}")
    return "\n".join([*rows, summary(report, ink)]) + "\n"


def summary(report: Report, ink: Ink) -> str:
    """`2 errors, 1 warning in 3 of 120 files; 4 files not checked`, then what was fixed and what can be."""
    facts = report.facts
    files, folders = int(facts.get("files", 0)), int(facts.get("folders_not_checked", 0))
    if not files + folders:
        return "No Python file or notebook to check"
    judged = report.verdict != "undetermined"
    parts = [_found(report, ink) + _within(facts, files) if judged else "Could not judge"]
    if missed := facts.get("files_not_checked"):
        parts.append(f"{count(missed, 'file')} not checked")
    if folders:
        parts.append(f"{count(folders, 'folder')} not checked")
    if known := facts.get("baseline", {}).get("matched"):
        parts.append(f"{count(known, 'finding')} known from the baseline")
    out = ["; ".join(parts)]
    if fixed := facts.get("fixed"):
        codes = ", ".join(f"{n} {code}" if n > 1 else code for code, n in sorted(fixed.items()))
        out.append(f"Fixed {count(sum(fixed.values()), 'finding')} ({codes}).")
    out += [printable(text) for text in facts.get("not_fixed", [])]
    return "\n".join([*out, *_fixes(facts.get("fixable") or {})])


def _head(finding: Finding, ink: Ink) -> str:
    at = finding.location
    place = "" if at is None else f"{at.path}:{at.line}:{at.column or 1}: "
    return f"{ink('path', place)}{finding.code} {ink(finding.severity, finding.severity)} {printable(finding.message)}"


def _fixable(finding: Finding) -> str:
    if not finding.remedy.edits:
        return ""
    return "  [--fix]" if finding.remedy.safe else "  [--fix --unsafe-fixes]"


def _cropped(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(0, room - 4)] + " ..."


def _not_checked(items: list[NotChecked], ink: Ink) -> list[str]:
    out = [f"{ink('path', item.check)}: not checked: {printable(item.reason)}" for item in items[:UNCHECKED]]
    rest = len(items) - UNCHECKED
    return [*out, f"and {rest} more not checked; JSON has all of them"] if rest > 0 else out


def _found(report: Report, ink: Ink) -> str:
    parts = []
    for severity in reversed(SEVERITIES):
        number = sum(1 for f in report.findings if f.severity == severity)
        if number:
            noun = "note" if severity == "info" else severity
            parts.append(ink(severity, count(number, noun)))
    return ", ".join(parts) if parts else ink("good", "No fault found")


def _within(facts: dict[str, Any], files: int) -> str:
    affected = facts.get("files_with_findings", 0)
    return f" in {count(affected)} of {count(files, 'file')}" if affected else f" in {count(files, 'file')}"


def _fixes(fixable: dict[str, int]) -> list[str]:
    safe, unsafe = fixable.get("safe", 0), fixable.get("unsafe", 0)
    parts = [f"{safe} fixable with --fix"] if safe else []
    parts += [f"{unsafe} {'more' if safe else 'fixable'} with --fix --unsafe-fixes"] if unsafe else []
    return [f"{', '.join(parts)} (preview with --diff)."] if parts else []
