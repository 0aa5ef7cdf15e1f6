"""The first card: the verdict, what was looked at, and the figures that matter most."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any

from torchvet.finding import SEVERITIES, Report
from torchvet.formatting import FILE_KINDS, ms
from torchvet.renderers.html.markup import NONE, Html, joined, tag
from torchvet.renderers.places import shown_path
from torchvet.renderers.verdict import evidence, headline
from torchvet.renderers.wording import binary, count, percent, seconds, size

Tile = tuple[str, str, str]
"""What, how much, and a word more."""
_UNIT = re.compile(r"(?<=\d) (?=(?:%|bytes|[kMGTP]i?B|[mu]?s)\b|%)")
"""The space between a number and its unit, at which no line is broken."""
NO_FINDINGS = ("comparison", "whatif")
"""Kinds of reports that answer questions and look for no faults: that they have none is no praise."""
_NOUNS = {"error": "error", "warning": "warning", "info": "note"}


def overview(report: Report) -> Html:
    """The card."""
    worst = report.worst()
    tone = f"findings-{worst}" if worst not in (None, "info") else "clean" if _is_clean(report) else ""
    said = evidence(report) if report.facts.get("verdict") is not None else ""
    tiles = [
        tag("div", tag("dt", what), tag("dd", much, *_small(more)), class_="tile")
        for what, much, more in _tiles(report)
    ]
    return tag(
        "section",
        tag("p", _subject(report), class_="soft small"),
        tag("h1", joined(_marked(headline(report))), id="verdict-title"),
        _badges(report),
        tag("p", said, class_="soft") if said else NONE,
        tag("dl", *tiles, class_="tiles") if tiles else NONE,
        id="verdict",
        class_=f"card verdict {tone}",
        aria_labelledby="verdict-title",
    )


def _is_clean(report: Report) -> bool:
    """Whether it says so: notes alone are no fault, and a comparison that nobody set a gate for says what changed."""
    if report.subject.get("kind") == "whatif":
        return False
    asked = report.subject.get("kind") != "comparison" or report.facts["comparison"]["gate"] is not None
    return asked and report.earned and report.verdict != "undetermined" and not _over(report)


def _over(report: Report) -> bool:
    return report.verdict == "findings" and not report.findings


def _marked(sentence: str) -> Iterator[str]:
    """Names in backquotes as code."""
    for number, part in enumerate(sentence.split("`")):
        yield tag("code", part) if number % 2 else _UNIT.sub("\u00a0", part)


marked = _marked


def _small(text: str) -> list[Html]:
    return [tag("small", text)] if text else []


def _subject(report: Report) -> str:
    subject = report.subject
    kind = str(subject.get("kind") or "report")
    if kind == "comparison":
        return (
            f"{subject['of']}: {shown_path(str(subject['before']))} before, {shown_path(str(subject['after']))} after"
        )
    if argv := subject.get("argv"):
        return f"torchvet {'fix' if kind == 'fix' else 'run'} {shlex.join(map(str, argv))}"
    paths = [str(p) for p in subject.get("paths") or [subject.get("path") or ""] if p]
    named = ", ".join(shown_path(p) for p in paths[:4]) + (f" and {len(paths) - 4} more" if len(paths) > 4 else "")
    return f"{FILE_KINDS.get(kind, kind)}: {named}" if named else kind


def _badges(report: Report) -> Html:
    numbers = Counter(f.severity for f in report.findings)
    found = [tag("span", count(numbers[s], _NOUNS[s]), class_=f"badge {s}") for s in reversed(SEVERITIES) if numbers[s]]
    if not report.findings and report.subject.get("kind") not in NO_FINDINGS:
        sure = report.verdict == "clean" and report.earned
        found = [
            tag("span", "no finding" if sure else "undetermined", class_="badge good" if sure else "badge warning")
        ]
    if report.not_checked:
        link = tag("a", count(len(report.not_checked), "thing"), " not checked", href="#not-checked")
        found.append(tag("span", link, class_="badge"))
    return tag("p", *found, class_="badges")


def _tiles(report: Report) -> list[Tile]:
    kind = report.subject.get("kind")
    if kind == "comparison":
        return list(_of_comparison(report.facts["comparison"]))
    if kind == "trace":
        return list(_of_trace(report.facts))
    if report.facts.get("snapshots"):
        return list(_of_snapshot(report.facts["snapshots"][0]))
    return list(_of_run(report)) if kind == "run" else []


def _of_run(report: Report) -> Iterator[Tile]:
    yield from _steps(report)
    yield from _memory(report)
    outcome, ranks = report.part("outcome"), report.facts.get("ranks")
    if outcome.get("how") not in (None, "finished", "steps-reached"):
        yield "ended", str(outcome["how"]).replace("-", " "), f"exit status {outcome.get('status')}"
    if ranks:
        yield "ranks", count(len(ranks)), ""
    if (ratio := report.overhead.get("ratio")) is not None:
        yield "cost of looking", f"{ratio:.2f}x", "the time of the program alone"


def _steps(report: Report) -> Iterator[Tile]:
    if report.facts.get("steps"):
        kinds = {kind: n for kind, n in report.part("step_kinds").items() if n}
        parts = ", ".join(f"{count(n)} {kind}" for kind, n in kinds.items()) if len(kinds) > 1 else ""
        yield "steps", count(report.facts["steps"]), parts
    time = report.part("time")
    if (step := time.get("median") or time.get("seconds_per_step")) is not None:
        phase, share = max(report.part("phases").items(), key=lambda p: p[1], default=("", 0.0))
        yield "a step", ms(step), f"most of it {phase}, {percent(share)}" if share else ""


def _memory(report: Report) -> Iterator[Tile]:
    peak, growth, end = report.part("peak"), report.part("growth"), report.part("forecast").get("step")
    if peak.get("bytes"):
        category, held = max(peak.get("categories", {}).items(), key=lambda c: c[1], default=("", 0))
        yield "peak of a step", size(peak["bytes"]), f"most of it {category}" if held else ""
    if (growth.get("bytes_per_step") or 0) > 0:
        share = growth.get("explained_share")
        told = f", {percent(share)} of it explained" if share is not None else ""
        yield "memory grows", size(growth["bytes_per_step"]), f"a step{told}"
    if end is not None:
        allowed = report.part("memory_limit").get("bytes")
        yield "memory ends", f"step {count(end)}", f"of {binary(allowed)}" if allowed else ""


def _of_snapshot(facts: dict[str, Any]) -> Iterator[Tile]:
    failure = facts.get("failure")
    yield ("in use at the error" if failure else "peak"), size((failure or facts["peak"])["bytes"]), ""
    yield "reserved", size(facts["reserved"]), "when the snapshot was taken"
    if failure:
        yield "asked for", size(failure["requested"]), f"{size(failure['driver_free'])} was free"
    if facts["steps"]["count"]:
        yield "steps", count(facts["steps"]["count"]), ""
    if growth := facts.get("growth"):
        yield "grows", size(growth["bytes_per_step"]), "a step"
    free = facts["fragmentation"]
    if free.get("split_free"):
        yield "free in pieces", size(free["split_free"]), percent(free["share"])
    yield "events", count(facts["events"]), f"in {seconds(facts['seconds'])}" if facts.get("seconds") else ""


def _of_trace(facts: dict[str, Any]) -> Iterator[Tile]:
    if step := facts.get("step"):
        known = step["known"]
        yield "a step" if known else "the trace", seconds(step["median"] if known else step["seconds"]), ""
    if facts.get("steps"):
        yield "steps", count(facts["steps"]), ""
    if gpu := facts.get("gpu"):
        yield "device busy", percent(gpu["busy_share"]), ""
        yield "kernels a step", count(gpu["kernels_per_step"]), f"{seconds(gpu['mean_kernel'])} each"
    if facts.get("ranks"):
        yield "ranks", count(len(facts["ranks"])), ""
    if facts.get("memory"):
        yield "peak memory", size(facts["memory"][0]["peak"]), str(facts["memory"][0]["device"])
    yield "events", count(facts.get("events") or 0), ""


def _of_comparison(facts: dict[str, Any]) -> Iterator[Tile]:
    from torchvet.renderers.comparison import amount

    seen: set[str] = set()
    for row in facts["differences"]:
        name = row["title"].split(" by ")[0]
        if row["before"] is None or row["after"] is None or name in seen:
            continue
        seen.add(name)
        by = f"{row['growth']:+.1%}" if row["growth"] is not None else "new"
        yield name, amount(row["after"], row["unit"]), f"{by}, from {amount(row['before'], row['unit'])}"
