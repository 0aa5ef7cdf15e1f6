"""A comparison of precisions as text: the verdict, a row a precision, what else bears on it."""

from __future__ import annotations

from typing import Any

from torchvet.finding import Report
from torchvet.renderers.page import Page, padded
from torchvet.renderers.sections.forecast import add_forecast
from torchvet.renderers.text import add_findings, add_rest
from torchvet.renderers.verdict import could_not_judge
from torchvet.renderers.wording import count, percent, seconds, size

_COLUMNS = (("precision", 10), ("step", 10), ("range", 21), ("to float32", 11), ("peak", 11), ("loss", 11))
_NAMED = 4


def amp_page(report: Report, color: bool, width: int) -> str:
    """The page of `torchvet amp`."""
    page = Page(width)
    page.paragraph(headline(report), "bold", most=4)
    facts = report.facts.get("amp")
    if facts is None:
        return page.text(color)
    add_findings(page, report)
    page.heading("Side by side")
    for line in table(facts):
        page.verbatim(line, indent=2)
    for line in notes_on(facts):
        page.paragraph(line, indent=2, hang=2, most=3)
    if forecast := report.facts.get("precision_forecast"):
        page.heading("Headroom, in a further run in float32")
        add_forecast(page, forecast)
    add_rest(page, report)
    return page.text(color)


def headline(report: Report) -> str:
    """The verdict in one line."""
    facts = report.facts.get("amp")
    return could_not_judge(report) if facts is None else f"{facts['summary']}."


def table(facts: dict[str, Any]) -> list[str]:
    """A row for each precision, under its headings."""
    lines = [" ".join(padded(title, room) for title, room in _COLUMNS).rstrip()]
    for row in facts["modes"]:
        cells = cells_of(row)
        lines.append(" ".join(padded(c, room) for c, (_, room) in zip(cells, _COLUMNS, strict=True)).rstrip())
    return lines


def cells_of(row: dict[str, Any]) -> list[str]:
    """A precision's cells; empty where nothing was measured."""
    if row["seconds"] is None:
        return [row["mode"], "failed", "", "", "", ""]
    low, high = row["spread"]
    ratio = f"{row['time_ratio']:.2f}x" if row["time_ratio"] else ""
    peak = size(row["peak_bytes"]) if row["peak_bytes"] else ""
    loss = "not finite" if row["not_finite"] else ""
    if row["final_loss"] is not None:
        loss = f"{row['final_loss']:.4g}"
    return [row["mode"], seconds(row["seconds"]), f"{seconds(low)} to {seconds(high)}", ratio, peak, loss]


def notes_on(facts: dict[str, Any]) -> list[str]:
    """What was done, what was skipped, and which sizes matter on a card with tensor cores."""
    done = "the program's own autocast regions and scaler were overridden"
    if facts["how"] == "wrapped":
        done = "the program has no autocast of its own here: its modules ran under autocast, its loss was scaled"
    lines = [
        f"{count(facts['trials'], 'run')} of {count(facts['steps'], 'step')} each, in turns; "
        f"a step's time is that of the fastest tenth; {done}"
    ]
    if facts["clock"] == "cpu":
        lines.append("times are CPU time of the one thread that computes, so other load on this machine does not count")
    for row in facts["modes"]:
        if row["skipped"]:
            lines.append(f"{row['mode']}: {count(row['skipped'], 'step')} skipped, the scale ended at {row['scale']:g}")
    plain, half = facts["modes"][0], facts["modes"][1]
    if plain["activation_bytes"] and half["activation_bytes"]:
        lines.append(
            f"activations {size(plain['activation_bytes'])} in float32, {size(half['activation_bytes'])} in float16; "
            f"autocast's half copies of the weights take up to {size(facts['weight_copies'])}"
        )
    if facts["unaligned"]:
        named = ", ".join(f"{u['name']} {tuple(u['shape'])}" for u in facts["unaligned"][:_NAMED])
        more = facts["unaligned_count"] - _NAMED
        others = f" and {more} more" if more > 0 else ""
        lines.append(f"sizes that are not multiples of 8, which slows tensor cores: {named}{others}")
    return lines


def markdown_section(facts: dict[str, Any]) -> str:
    """The table as Markdown. It has no names of weights, so no text of the program that needs escaping."""
    rows = ["| " + " | ".join(title for title, _ in _COLUMNS) + " |", "|---" * len(_COLUMNS) + "|"]
    rows += ["| " + " | ".join(cells_of(row)) + " |" for row in facts["modes"]]
    smaller = [row for row in facts["modes"][1:] if row["memory_ratio"] and row["memory_ratio"] < 1]
    saved = [f"- {row['mode']}: {percent(1 - row['memory_ratio'])} of the peak saved" for row in smaller]
    return "\n".join([*rows, "", *saved]).rstrip()
