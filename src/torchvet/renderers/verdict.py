"""The verdict in one sentence: how many faults, the gravest by name, and when it ends the run."""

from __future__ import annotations

import textwrap

from torchvet.finding import SEVERITIES, Finding, Report
from torchvet.renderers.wording import count, limit, size

_MOST = 160
"""Characters of an error's text."""


def serious(report: Report) -> list[Finding]:
    """The findings that ask for a change, gravest first; within a severity in the report's own order."""
    found = [f for f in report.findings if f.severity != "info"]
    return sorted(found, key=lambda f: SEVERITIES.index(f.severity), reverse=True)


def notes(report: Report) -> list[Finding]:
    """The findings that are only worth knowing."""
    return [f for f in report.findings if f.severity == "info"]


def verdict(report: Report) -> str:
    """The first line of a report."""
    found = serious(report)
    if found:
        return f"{_how_many(found)}: {_headline(found[0])}{_fate(found[0], report)}"
    if report.verdict == "undetermined":
        reason = report.not_checked[0].reason if report.not_checked else _ending(report)
        return f"Could not judge: {reason}"
    extra = f"; {count(len(notes(report)), 'note')} below" if notes(report) else ""
    return f"No fault found{_over_steps(report)}{_failed(report)}{extra}"


def _how_many(found: list[Finding]) -> str:
    leaks = all(_grows(f) for f in found)
    number = count(len(found), "leak" if leaks else "fault")
    return number if len(found) == 1 else f"{number}, the worst"


def _grows(finding: Finding) -> bool:
    return (finding.measured.bytes_per_step or 0) > 0


def _headline(finding: Finding) -> str:
    rate = finding.measured.bytes_per_step
    if finding.holder is None or rate is None or rate <= 0:
        return finding.message.rstrip(".")
    return f"`{finding.holder.name}` keeps {size(rate)} per step alive"


def _fate(finding: Finding, report: Report) -> str:
    if (report.facts.get("outcome") or {}).get("how") == "out-of-memory":
        return f"; the program ran out of memory{_over_steps(report, 'after')}"
    step = finding.measured.exhausted_at_step
    if step is None:
        return ""
    allowed = (report.facts.get("memory_limit") or {}).get("bytes")
    return f"; out of memory at step {count(step)}" + (f" ({limit(allowed)})" if allowed else "")


def _failed(report: Report) -> str:
    """A failure that no finding explains is said with what it is: nobody shall read that all is well."""
    outcome = report.facts.get("outcome") or {}
    if outcome.get("how") != "exception":
        return ""
    error = textwrap.shorten(str(outcome.get("error") or "an exception"), _MOST, placeholder=" …")
    return f", but the program failed: {error}"


def _over_steps(report: Report, word: str = "in") -> str:
    steps = report.facts.get("steps")
    return f" {word} {count(steps, 'step')}" if steps else ""


def _ending(report: Report) -> str:
    outcome = report.facts.get("outcome") or {}
    return str(outcome.get("error") or outcome.get("how") or "nothing was recorded")
