"""Charts as figures: a heading, what a chart shows in words, the place where it is drawn, its numbers as a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchvet.charts import MOST_ROWS, Chart
from torchvet.finding import Report
from torchvet.renderers.html.bars import bars
from torchvet.renderers.html.icicle import icicle
from torchvet.renderers.html.markup import NONE, Html, joined, table, tag

_WORDS = {
    "memory": "Memory",
    "holders": "Holders",
    "growth": "Growth",
    "time": "Time",
    "numbers": "Loss",
    "ranks": "Rank map",
    "precision": "Precision",
    "peaks": "Peaks",
    "layout": "Layout",
    "step": "Step",
    "kernels": "Kernels",
    "device": "Device",
}
"""What the navigation calls a chart."""


@dataclass(frozen=True)
class Figure:
    """The charts of one id, with their places in the page's list: one, or one a rank."""

    id: str
    word: str
    title: str
    charts: list[tuple[int, Chart]]
    rank: int | None
    """The rank that is shown first."""


def figures(charts: list[Chart], report: Report) -> list[Figure]:
    """The charts by their ids, in their order."""
    found: dict[str, list[tuple[int, Chart]]] = {}
    for place, chart in enumerate(charts):
        found.setdefault(chart.id, []).append((place, chart))
    rank = report.facts.get("rank")
    return [Figure(name, _word(name, of[0][1]), of[0][1].title, of, rank) for name, of in found.items()]


def _word(name: str, chart: Chart) -> str:
    return _WORDS.get(name) or chart.title.split(":")[0]


def section_of(figure: Figure) -> Html:
    """The section."""
    ranks = [c.rank for _, c in figure.charts]
    several = len(figure.charts) > 1 and None not in ranks
    shown = figure.rank if figure.rank in ranks else ranks[0]
    parts = [_one(figure, place, chart, hidden=several and chart.rank != shown) for place, chart in figure.charts]
    heading = tag("h2", figure.title, id=f"{figure.id}-title")
    head = tag("div", heading, _choice(figure, shown) if several else NONE, class_="chart-head")
    return tag("section", head, *parts, id=figure.id, class_="card", aria_labelledby=f"{figure.id}-title")


def _choice(figure: Figure, shown: int | None) -> Html:
    options = [tag("option", f"rank {c.rank}", value=str(c.rank), selected=c.rank == shown) for _, c in figure.charts]
    select = tag("select", *options, data_charts=figure.id, aria_label=f"{figure.title}: rank")
    return tag("div", select, class_="tools")


def _one(figure: Figure, place: int, chart: Chart, hidden: bool) -> Html:
    told = f"told-{place}"
    drawn = _PLAIN[chart.kind](chart, told) if chart.kind in _PLAIN else _plotted(place, chart)
    notes = [tag("p", note, class_="soft small") for note in chart.notes]
    inside = [tag("p", chart.caption, id=told), drawn, _marks(chart), *notes, _numbers(chart)]
    rank = None if chart.rank is None else str(chart.rank)
    return tag("div", *inside, data_of=figure.id, data_rank=rank, hidden=hidden, class_="figure")


def _marks(chart: Chart) -> Html:
    """What the dotted lines stand for, by the letters that they have where there is no room for words."""
    if not chart.marks:
        return NONE
    return tag(
        "ol", *(tag("li", mark.label, class_="calm" if mark.calm else None) for mark in chart.marks), class_="marks"
    )


def _plotted(place: int, chart: Chart) -> Html:
    """Where the page's script draws, with the legend that it fills."""
    legend = tag("ul", id=f"legend-{place}", class_="legend", aria_label=f"{chart.title}: what is shown")
    without = tag("noscript", "The chart needs JavaScript; its figures are in the table below.")
    plot = tag(
        "div",
        without,
        class_="plot",
        id=f"plot-{place}",
        data_chart=place,
        role="img",
        aria_label=chart.title,
        aria_describedby=f"told-{place}",
        style=f"height: {max(140, 76 + 24 * len(chart.labels))}px" if chart.kind in ("heat", "blocks") else None,
    )
    return joined([_views(place, chart), legend, plot])


_PLAIN: dict[str, Callable[[Chart, str], Html]] = {"icicle": icicle, "bars": lambda chart, _: bars(chart)}
"""Kinds that are drawn without a script."""
PLOTTED = ("lines", "heat", "blocks")
"""Kinds that Plotly draws."""


def _views(place: int, chart: Chart) -> Html:
    if len(chart.views) < 2:
        return NONE
    buttons = [
        tag("button", v.label, type="button", data_chart=place, data_view=n, aria_pressed="true" if n == 0 else "false")
        for n, v in enumerate(chart.views)
    ]
    return tag("div", *buttons, class_="tools", role="group", aria_label="Part of the chart")


def _numbers(chart: Chart) -> Html:
    if not chart.rows:
        return NONE
    rows, more = chart.rows[:MOST_ROWS], len(chart.rows) - MOST_ROWS
    numbers = frozenset(range(1, len(chart.columns)))
    shown = [table(chart.columns, rows, numbers=numbers, caption=f"{chart.title}: the figures")]
    if more > 0:
        shown.append(tag("p", f"and {more:,} more rows", class_="soft small"))
    return tag("details", tag("summary", "Figures as a table"), joined(shown), class_="print")
