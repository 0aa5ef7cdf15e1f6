"""A comparison of precisions as text: the verdict, a row a precision, what else bears on it."""

from __future__ import annotations

from typing import Any, ClassVar

from torchvet.finding import Report
from torchvet.renderers.page import Page, padded
from torchvet.renderers.text import add_findings, add_rest
from torchvet.renderers.wording import count, percent, seconds, size

_COLUMNS = (("precision", 10), ("step", 10), ("range", 21), ("to float32", 11), ("peak", 11), ("loss", 11))
_NAMED = 4


class AmpText:
    """The report of `torchvet amp` for a person at a terminal."""

    format: ClassVar[str] = "text"
    extensions: ClassVar[tuple[str, ...]] = ()

    def render(self, report: Report, color: bool = False, width: int = 100) -> str:
        """The report as text."""
        page = Page(width)
        facts = report.facts.get("amp")
        if facts is None:
            page.paragraph(headline(report), "bold", most=4)
            return page.text(color)
        page.paragraph(headline(report), "bold", most=4)
        add_findings(page, report)
        page.heading("Side by side")
        for line in table(facts):
            page.verbatim(line, indent=2)
        for line in notes_on(facts):
            page.paragraph(line, indent=2, hang=2, most=3)
        add_rest(page, report)
        return page.text(color)


def headline(report: Report) -> str:
    """The verdict in one line."""
    facts = report.facts.get("amp")
    if facts is not None:
        return f"{facts['summary']}."
    reason = report.not_checked[0].reason if report.not_checked else "nothing was recorded"
    return f"Could not judge: {reason}"


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
    loss = f"{row['final_loss']:.4g}" if row["final_loss"] is not None else ("not finite" if row["not_finite"] else "")
    return [
        row["mode"], seconds(row["seconds"]), f"{seconds(low)} to {seconds(high)}",
        f"{row['time_ratio']:.2f}x" if row["time_ratio"] else "",
        size(row["peak_bytes"]) if row["peak_bytes"] else "", loss,
    ]  # fmt: skip


def notes_on(facts: dict[str, Any]) -> list[str]:
    """What was done, what was skipped, and which sizes matter on a card with tensor cores."""
    done = "the program's own autocast regions and scaler were overridden"
    if facts["how"] == "wrapped":
        done = "the program has no autocast of its own here: its modules ran under autocast, its loss was scaled"
    lines = [
        f"{count(facts['trials'], 'run')} of {count(facts['steps'], 'step')} each, in turns; "
        f"a step is as long as their quickest tenth; {done}"
    ]
    if facts["clock"] == "cpu":
        lines.append("times are CPU time of the one thread that computes: what else this machine does is left out")
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
        lines.append(
            f"not multiples of 8, which tensor cores like best: {named}" + (f" and {more} more" if more > 0 else "")
        )
    return lines


def markdown_section(facts: dict[str, Any]) -> str:
    """The same as Markdown: nothing in it comes from the program but the names of weights, which are left out."""
    rows = ["| " + " | ".join(title for title, _ in _COLUMNS) + " |", "|---" * len(_COLUMNS) + "|"]
    rows += ["| " + " | ".join(cells_of(row)) + " |" for row in facts["modes"]]
    saved = [f"- {row['mode']}: {percent(1 - row['memory_ratio'])} of the peak saved" for row in facts["modes"][1:]
             if row["memory_ratio"] and row["memory_ratio"] < 1]  # fmt: skip
    return "\n".join([*rows, "", *saved]).rstrip()
