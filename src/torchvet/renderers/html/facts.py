"""The sections without a chart: lines by time, ranks, what was not checked, the environment, the report as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from torchvet.charts import NOTHING, Drawing
from torchvet.finding import Report
from torchvet.formatting import FILE_KINDS, ms
from torchvet.renderers.html.markup import NONE, Html, joined, table, tag
from torchvet.renderers.places import shown_path
from torchvet.renderers.wording import count, limit, percent, seconds, size

LINES = 12


def _card(name: str, title: str, *inside: Html) -> Html:
    return tag(
        "section",
        tag("h2", title, id=f"{name}-title"),
        *inside,
        id=name,
        class_="card",
        aria_labelledby=f"{name}-title",
    )


def lines_of_step(report: Report) -> Html:
    """The lines that take most of a step, as bars."""
    rows = (report.part("time").get("lines") or [])[:LINES]
    if not rows:
        return NONE
    bars: list[Html] = []
    for row in rows:
        code = f"  {row['code']}" if row["code"] else ""
        name = tag(
            "span", tag("code", f"{shown_path(row['path'])}:{row['line']}{code}"), class_="name", title=row["function"]
        )
        share = min(1.0, max(0.0, float(row["share"])))
        bar = tag("span", tag("i", style=f"width: {100 * share:.1f}%"), class_="bar", aria_hidden="true")
        bars += [
            name,
            tag("span", ms(row["seconds_per_step"]), class_="num"),
            tag("span", percent(share), class_="num"),
            bar,
        ]
    time = report.part("time")
    watched, step = count(time["steps_watched"], "step"), ms(time["seconds_per_step"])
    told = f"From {watched} that the clock of lines watched; a step takes {step} in them."
    return _card("lines", "Time of a step by line", tag("p", told), tag("div", *bars, class_="meter"))


def ranks(report: Report) -> Html:
    """A row for each rank of a run or a trace, and which stand out."""
    rows = report.facts.get("ranks") or []
    if not rows:
        return NONE
    columns = [c for c in _COLUMNS if any(row.get(c[1]) not in (None, "", 0) for row in rows) or c[1] == "rank"]
    lines = [[_cell(row.get(field), write) for _, field, write in columns] for row in rows]
    numbers = frozenset(at for at, (_, field, _) in enumerate(columns) if field not in ("host", "how", "path"))
    return _card(
        "rank-table", "Ranks", table([c[0] for c in columns], lines, numbers=numbers, caption="A row for each rank")
    )


def _cell(value: Any, write: Any) -> str:
    return "" if value is None else str(write(value))


_COLUMNS: list[tuple[str, str, Any]] = [
    ("rank", "rank", str),
    ("host", "host", str),
    ("steps", "steps", count),
    ("a step", "seconds_per_step", ms),
    ("a step", "step", ms),
    ("busy", "busy_share", percent),
    ("in collectives", "collectives", ms),
    ("idle", "idle", ms),
    ("peak", "peak_bytes", size),
    ("peak", "peak", size),
    ("grows a step", "bytes_per_step", size),
    ("ended", "how", lambda how: str(how).replace("-", " ")),
    ("file", "path", lambda path: shown_path(str(path))),
]


def not_checked(report: Report, drawing: Drawing, failed: list[str]) -> Html:
    """What could not be looked at, which charts there are no figures for, and which `failed` on the page."""
    items = [tag("li", tag("strong", f"{n.check}: "), n.reason) for n in report.not_checked]
    missing = drawing.missing
    if drawing is NOTHING and report.subject.get("kind") in FILE_KINDS:
        missing = ["only the report was at hand, not what it was made of: its findings are shown without their series"]
    items += [tag("li", tag("strong", "not drawn: "), text) for text in [*missing, *failed]]
    if not items:
        return _card("not-checked", "Not checked", tag("p", "Nothing is listed as not checked.", class_="soft"))
    told = tag("p", "Silence about these is no sign of health.", class_="soft")
    return _card("not-checked", "Not checked", told, tag("ul", *items, class_="plain"))


def environment(report: Report) -> Html:
    """Where and how it ran, and what looking has cost."""
    said = [tag("dt", what) + tag("dd", text) for what, text in _environment(report) if text]
    return _card("environment", "Environment", tag("dl", joined(map(Html, said)), class_="said"))


def _environment(report: Report) -> Iterator[tuple[str, str]]:
    facts, subject = report.facts, report.subject
    yield "program", shlex.join(map(str, subject.get("argv") or []))
    yield "file", shown_path(str(facts.get("program") or subject.get("path") or ""))
    for key in ("torch", "python", "device"):
        yield key, str(facts.get(key) or "")
    yield "simulated GPU", str(facts.get("simulated_gpu") or "")
    yield "memory limit", _allowed(report.part("memory_limit"))
    yield "ended", _ended(report.part("outcome"))
    yield "took", seconds(facts["seconds"]) if facts.get("seconds") is not None else ""
    yield "devices", ", ".join(map(str, facts.get("devices") or []))
    for snapshot in facts.get("snapshots") or []:
        settings = ", ".join(f"{k}={v}" for k, v in (snapshot.get("settings") or {}).items())
        yield f"allocator of device {snapshot['device']}", settings
    yield "recording", shown_path(str(facts.get("recording") or ""))
    yield "cost of looking", ", ".join(_cost(report.overhead))
    yield "torchvet", report.version


def _allowed(facts: dict[str, Any]) -> str:
    return f"{limit(facts['bytes'])} ({facts.get('source')})" if facts.get("bytes") else ""


def _ended(facts: dict[str, Any]) -> str:
    error = f": {facts['error']}" if facts.get("error") else ""
    return (
        f"{str(facts['how']).replace('-', ' ')}, exit status {facts.get('status')}{error}" if facts.get("how") else ""
    )


def _cost(overhead: dict[str, Any]) -> Iterator[str]:
    if overhead.get("seconds") is not None:
        yield f"{seconds(overhead['seconds'])} of the run"
    if overhead.get("ratio") is not None:
        yield f"{overhead['ratio']:.2f} times the program alone"
    if overhead.get("steps_ratio") is not None:
        yield f"its steps {overhead['steps_ratio']:.2f} times"


def as_text(report: Report) -> Html:
    """The same report as `--format text` prints it, to be copied."""
    from torchvet.renderers.plain import TextRenderer

    lines = TextRenderer().render(report, width=0).split("\n")
    body = Html("\n").join(joined([line]) for line in lines)
    text = tag("pre", Html(body), class_="page-text", tabindex=0)
    alone = not (report.findings or report.part("comparison") or report.subject.get("kind") in FILE_KINDS)
    shown = tag("details", tag("summary", "The report as the terminal shows it"), text, open=alone)
    return _card("text", "As text", shown)
