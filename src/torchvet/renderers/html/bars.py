"""Bars by name, without a script: whole names, an amount beside each bar. Below zero a bar is a warning."""

from __future__ import annotations

from torchvet.charts import Chart, Unit
from torchvet.formatting import ms, percent, size
from torchvet.renderers.html.colors import colors_of
from torchvet.renderers.html.markup import NONE, Html, joined, tag


def bars(chart: Chart) -> Html:
    """A row a name, with a bar for each series that has an amount for it."""
    colors = colors_of(chart)
    most = max((abs(y) for s in chart.series for y in s.y if y is not None), default=0.0) or 1.0
    rows: list[Html] = []
    several = False
    for at, label in enumerate(chart.labels):
        known = [(s.name, colors[s.role or s.name], y) for s in chart.series if (y := s.y[at]) is not None]
        several = several or len(known) > 1
        of_row = [_bar(name, color, y, most, chart.unit, len(known) > 1) for name, color, y in known]
        rows.append(tag("li", tag("span", label, class_="name"), *of_row))
    signs = [tag("li", tag("i", style=f"background: var(--{colors[s.role or s.name]})"), s.name) for s in chart.series]
    legend = tag("ul", *signs, class_="legend", aria_hidden="true") if several else NONE
    return joined([legend, tag("ul", *rows, class_="bars", aria_label=chart.title)])


def _bar(name: str, color: str, value: float, most: float, unit: Unit, named: bool) -> Html:
    kind = "error" if value < 0 else color
    inside = tag("i", style=f"width: {100 * abs(value) / most:.2f}%; background: var(--{kind})", aria_hidden="true")
    who = tag("span", f"{name}: ", class_="only-read") if named else NONE
    return tag(
        "span", tag("span", inside, class_="track"), tag("span", who, amount(value, unit), class_="num"), class_="bar"
    )


def amount(value: float, unit: Unit) -> str:
    """A value with its unit, as reports write it."""
    if unit == "bytes":
        return size(value)
    if unit == "seconds":
        return ms(value) if value else "0 s"
    return percent(value) if unit == "share" else f"{value:.1f} bits" if unit == "bits" else f"{value:,.0f}"
