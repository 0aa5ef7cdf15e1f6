"""The verdict in one sentence: how many faults, the worst by name, and when memory runs out."""

from __future__ import annotations

import textwrap
from importlib import import_module
from typing import Any

from torchvet.finding import ALSO_GROWS, SEVERITIES, Finding, Report
from torchvet.formatting import rank_names
from torchvet.renderers.places import at
from torchvet.renderers.wording import binary, count, percent, size

_MUCH = 0.25
"""Of a step's time, what a line takes that is worth a word in the first line of a report."""
_EXPLAINED = 0.1
"""The part of the memory that tensors must take until it is used up, for a first line that gives their rate alone."""
_MOST = 160
"""The most characters of an error's text."""
_HEADLINES = {
    "amp": "text_amp",
    "comparison": "comparison",
    "doctor": "text_doctor",
    "fix": "text_fix",
    "whatif": "text_whatif",
}
"""By the kind of a report: the module that knows its first line."""


def serious(report: Report) -> list[Finding]:
    """Errors, then warnings, each in the report's order."""
    found = [f for f in report.findings if f.severity != "info"]
    return sorted(found, key=lambda f: SEVERITIES.index(f.severity), reverse=True)


def notes(report: Report) -> list[Finding]:
    """The findings of severity `info`."""
    return [f for f in report.findings if f.severity == "info"]


def headline(report: Report) -> str:
    """The first line of a report of any kind."""
    kind = report.subject.get("kind")
    if kind == "check":
        from torchvet.renderers.listing import Ink, summary

        return summary(report, Ink(False)).split("\n")[0]
    module = _HEADLINES.get(str(kind))
    return str(import_module(f"torchvet.renderers.{module}").headline(report)) if module else verdict(report)


def verdict(report: Report) -> str:
    """The first line of a report on a run, a snapshot or a trace."""
    return _how_many_files(report) + _verdict(report)


def _how_many_files(report: Report) -> str:
    """Of a report on thousands of files, how many of them it is about."""
    fleet = report.part("fleet")
    if not fleet:
        return ""
    many = f"{count(fleet['read'])} of {count(fleet['files'], 'file')} read"
    return f"Interrupted, {many}: " if fleet["interrupted"] else f"{many}: "


def _verdict(report: Report) -> str:
    found = serious(report)
    if found:
        return f"{_how_many(found)}: {_headline(found[0], report)}{_memory_end(found[0], report)}{_unseen(report)}"
    extra = f"; {count(len(notes(report)), 'note')} below" if notes(report) else ""
    failed = _failed(report) or _restarted(report)
    if failed:
        return f"No cause found{_over_steps(report)}{failed}{_unseen(report)}{extra}"
    if report.verdict == "undetermined" or not report.earned:
        return f"{could_not_judge(report)}{extra}"
    return f"No fault found{_over_steps(report)}{_idle(report)}{_slowest(report)}{extra}"


def evidence(report: Report) -> str:
    """What a clean verdict rests on: each witness of growth with its measure and its threshold.

    Empty if there are faults or nothing was measured.
    """
    if serious(report) or not report.earned:
        return ""
    rows = report.part("verdict").get("evidence") or []
    parts = [_measure(row) for row in rows if row.get("unit") and row.get("measured") is not None]
    ranks = {row.get("rank") for row in rows}
    return f"Measured per step: {', '.join(parts)}" if parts and len(ranks) == 1 else ""


def _measure(row: dict[str, Any]) -> str:
    """One witness: `heap +0.2 kB (at most 0.7 kB; flat up to 2.5 kB)`."""
    write = size if row["unit"] == "bytes" else count
    high, threshold = row.get("high"), row.get("threshold")
    most = "" if high is None or high - row["measured"] < (threshold or 0) / 100 else f"at most {write(high)}; "
    limits = f" ({most}flat up to {write(threshold)})" if threshold else ""
    return f"{row['witness']} {'+' if row['measured'] >= 0 else ''}{write(row['measured'])}{limits}"


def could_not_judge(report: Report) -> str:
    """What is missing for a verdict, and what to do about it."""
    judged, outcome = report.part("verdict"), report.part("outcome")
    if judged.get("reason"):
        reason = "; ".join(filter(None, (judged["reason"], judged.get("fix"))))
    elif report.not_checked:
        reason = report.not_checked[0].reason
    else:
        reason = str(outcome.get("error") or outcome.get("how") or "nothing was recorded")
    return f"Could not judge: {reason}"


def _how_many(found: list[Finding]) -> str:
    leaks = all(_grows(f) for f in found)
    number = count(len(found), "leak" if leaks else "fault")
    return number if len(found) == 1 else f"{number}, the worst"


def _grows(finding: Finding) -> bool:
    return (finding.measured.bytes_per_step or 0) > 0


def _headline(finding: Finding, report: Report) -> str:
    rate, end = finding.measured.bytes_per_step, finding.measured.exhausted_at_step
    if finding.holder is None or rate is None or rate <= 0:
        return finding.message.rstrip(".")
    # Nodes of graphs end memory, or what else the message tells of: the tensors' rate would not explain the step.
    allowed = report.part("memory_limit").get("bytes")
    if end is not None and allowed and rate * end < _EXPLAINED * allowed:
        return finding.message.rstrip(".")
    others = sum(related.role == ALSO_GROWS for related in finding.related)
    who = f" and {count(others, 'more name', 'more names')} keep" if others else " keeps"
    return f"`{finding.holder.name}`{who} {size(rate)} per step alive"


def _memory_end(finding: Finding, report: Report) -> str:
    if report.part("outcome").get("how") == "out-of-memory":
        return f"; the program ran out of memory{_over_steps(report, 'after')}"
    step = finding.measured.exhausted_at_step
    if step is None:
        return ""
    allowed = report.part("memory_limit").get("bytes")
    return f"; out of memory at step {count(step)}" + (f" ({binary(allowed)})" if allowed else "")


def _failed(report: Report) -> str:
    """The program's error, so that nobody reads `No fault found` as success."""
    outcome = report.part("outcome")
    rank = outcome.get("rank")
    who = "the program" if rank is None else f"rank {rank}"
    if outcome.get("how") == "killed" and (rank is not None or outcome.get("place")):
        steps = f" after {count(outcome['steps'], 'step')}" if outcome.get("steps") else ""
        return f", but {who} was killed by signal {-outcome['status']}{failed_at(outcome)}{steps}{_last(outcome)}"
    if outcome.get("how") != "exception":
        return ""
    error = textwrap.shorten(str(outcome.get("error") or "an exception"), _MOST, placeholder=" …")
    return f", but {who} failed{failed_at(outcome)}: {error}"


def _last(outcome: dict[str, Any]) -> str:
    """Where a rank stood that was killed without notice, as far as it was seen."""
    last = outcome.get("last")
    if not last:
        return ""
    at_line = failed_at(last) if not outcome.get("place") else ""
    call = f" (`{last['call']}`)" if at_line and last.get("call") else ""
    seen = f"last seen{at_line}{call}, " if at_line else ""
    return f": it was {seen}{last['phase']} in step {count(last['step'])}"


def _restarted(report: Report) -> str:
    """That a launcher started all ranks again, and why: the run that succeeded does not say so."""
    starts: list[dict[str, Any]] = report.facts.get("restarts") or []
    if not starts:
        return ""
    last = starts[-1]
    return f", but rank {last['rank']} had failed{failed_at(last)}, and all ranks were started again"


def _unseen(report: Report) -> str:
    """Ranks whose records are not here: the cause may lie with them, or another fault."""
    ranks = [rank for one in report.facts.get("absent") or [] for rank in one["ranks"]]
    many, world = report.facts.get("absent_ranks"), report.facts.get("world_size")
    who = [rank_names(ranks)] if ranks else []
    who += [f"{count(many)} of {count(world)} ranks"] if many and world else []
    return f"; nothing is known of {' and '.join(who)}" if who else ""


def failed_at(outcome: dict[str, Any]) -> str:
    """The line of the program's own code by which it ended: ` at train.py:44 in main`."""
    place = outcome.get("place")
    if not place:
        return ""
    return f" at {at(place['path'], place['line'])}" + (f" in {place['function']}" if place["function"] else "")


def _idle(report: Report) -> str:
    """A device's idle time in a trace that no rule explains, so that nobody reads `No fault found` as busy."""
    lost = report.facts.get("unexplained")
    return f", but the device is idle for {percent(lost['idle'])} of the time" if lost else ""


def _slowest(report: Report) -> str:
    """The line that takes most of a step: rules know some reasons for that, and not all of them."""
    lines = report.part("time").get("lines") or []
    most = max(lines, key=lambda line: float(line["share"]), default=None)
    if most is None or most["share"] < _MUCH:
        return ""
    return f"; {percent(most['share'])} of a step's time is at {at(most['path'], most['line'])}"


def _over_steps(report: Report, word: str = "in") -> str:
    steps = report.facts.get("steps")
    return f" {word} {count(steps, 'step')}" if steps else ""
