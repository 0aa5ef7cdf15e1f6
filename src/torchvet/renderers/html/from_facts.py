"""Charts of what stands in the report itself: comparisons, the headroom in half precision."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from torchvet.charts import Chart, Series, Unit, guarded, only
from torchvet.finding import Report
from torchvet.renderers.comparison import amount
from torchvet.renderers.html.trials import charts_of_trials
from torchvet.renderers.sections.forecast import gradient_text, sampled_text
from torchvet.renderers.wording import count

ROWS, OPERATORS = 12, 24


def charts_of_facts(report: Report, failed: list[str]) -> list[Chart]:
    """All of them; empty where the report has no such facts. `failed` gets those that fail."""
    draws: list[tuple[str, Callable[[], Chart | None]]] = []
    if report.subject.get("kind") == "comparison":
        differences = report.facts["comparison"]["differences"]
        draws += [(str(d["title"]), partial(_difference, d, report)) for d in differences if d["rows"]]
    draws += charts_of_trials(report)
    if forecast := report.facts.get("precision_forecast"):
        draws.append(("headroom in float16", partial(_precision, forecast)))
        draws.append(("headroom by module", partial(_headroom, forecast)))
    return [chart for what, draw in draws if (chart := guarded(what, draw, failed)) is not None]


def _difference(facts: dict[str, Any], report: Report) -> Chart:
    rows, unit = facts["rows"][:ROWS], str(facts["unit"])
    names = [str(row["name"]) for row in rows]
    kind: Unit = "bytes" if unit.startswith("bytes") else "seconds" if unit.startswith("seconds") else ""
    more = len(facts["rows"]) - len(rows)
    title = str(facts["title"])
    return Chart(
        id="change-" + re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-"),
        title=title[:1].upper() + title[1:],
        kind="bars",
        caption=_told(facts, report),
        x_title=unit,
        unit=kind,
        labels=names,
        series=[
            Series(name=side, role=side, x=[], y=[float(row[side]) for row in rows], style="bar")
            for side in ("before", "after")
        ],
        notes=[f"the {len(rows)} largest of {len(facts['rows'])} changes are drawn"] if more > 0 else [],
        columns=["name", "before", "after"],
        rows=[[str(r["name"]), amount(r["before"], unit), amount(r["after"], unit)] for r in facts["rows"]],
    )


def _told(facts: dict[str, Any], report: Report) -> str:
    before, after, unit = facts["before"], facts["after"], facts["unit"]
    largest = facts["rows"][0]
    was, now = amount(largest["before"], unit), amount(largest["after"], unit)
    most = f"the largest change: {largest['name']}, from {was} to {now}"
    if before is None or after is None:
        return most[:1].upper() + most[1:] + "."
    return f"In all {amount(before, unit)} before, {amount(after, unit)} after; {most}."


def _precision(facts: dict[str, Any]) -> Chart | None:
    known = [row for row in facts["operators"] if row["headroom_bits"] is not None]
    rows = sorted(known, key=lambda row: float(row["headroom_bits"]))[:OPERATORS]
    if not rows:
        return None
    names = [f"{row['module'] or 'outside modules'} {row['operator']}" for row in rows]
    said = [facts["summary"], gradient_text(facts["gradients"]), sampled_text(facts)]
    return Chart(
        id="precision",
        title="Headroom in float16",
        kind="bars",
        caption=". ".join(part[:1].upper() + part[1:] for part in said if part) + ".",
        x_title="bits (powers of two) between the largest value and float16's limit of 65,504",
        unit="bits",
        labels=names,
        series=[
            Series(name="headroom", role="activations", x=[], y=[float(r["headroom_bits"]) for r in rows], style="bar")
        ],
        notes=[f"the {len(rows)} nearest of {count(len(known), 'operator')} are drawn"]
        if len(known) > len(rows)
        else [],
        columns=["operator", "largest", "bits", "line"],
        rows=[
            [
                n,
                f"{max(r['largest'], r['operand']):.3g}",
                str(r["headroom_bits"]),
                f"{r['path']}:{r['line']}" if r["path"] else "",
            ]
            for n, r in zip(names, rows, strict=True)
        ],
    )


def _headroom(facts: dict[str, Any]) -> Chart | None:
    """How far each module's results and gradients are from both ends of float16."""
    # A report of an earlier version has none.
    found = facts.get("modules") or []
    rows = found[:OPERATORS]
    if not rows:
        return None
    names = [str(row["module"] or "outside modules") for row in rows]
    scale = facts["gradients"]["scale_exponent"]
    return Chart(
        id="headroom",
        title="Headroom by module",
        kind="bars",
        caption=_headroom_told(rows, names, scale),
        x_title="bits (powers of two); below 0 it is out of range",
        unit="bits",
        labels=names,
        series=_headroom_bars(rows, scale or 0),
        notes=only(len(found) > len(rows), f"the {len(rows)} nearest of {count(len(found), 'module')} are drawn"),
        columns=[
            *("module", "largest result", "bits below float16's largest", "below bfloat16's", "largest gradient"),
            *("1 % of gradients below", "bits above float16's smallest normal", f"scaled by 2**{scale or 0}"),
            "above bfloat16's",
        ],
        rows=[_headroom_row(name, row, scale or 0) for name, row in zip(names, rows, strict=True)],
    )


def _headroom_bars(rows: list[dict[str, Any]], scale: int) -> list[Series]:
    bits = [row["bits"]["float16"] for row in rows]
    low = [one["gradients_to_smallest_normal"] for one in bits]
    sides = [
        ("largest result, below float16's largest", "activations", [one["to_largest"] for one in bits]),
        ("gradients, above float16's smallest normal", "gradients", low),
        (f"the same with a loss scale of 2**{scale}", "after", [b + scale if b is not None else None for b in low]),
    ]
    return [Series(name=name, role=role, x=[], y=values, style="bar") for name, role, values in sides]


def _headroom_told(rows: list[dict[str, Any]], names: list[str], scale: int | None) -> str:
    def worst(key: str) -> tuple[float, str] | None:
        known = [
            (float(b), n) for r, n in zip(rows, names, strict=True) if (b := r["bits"]["float16"][key]) is not None
        ]
        return min(known, default=None)

    told = []
    if (top := worst("to_largest")) is not None:
        told.append(f"The largest result of {top[1]} is {_away(top[0], 'below', 'above')} float16's largest number.")
    if (low := worst("gradients_to_smallest_normal")) is not None:
        told.append(
            f"The gradients of {low[1]} reach to {_away(low[0], 'above', 'below')} its smallest normal one; "
            f"a loss scale of 2**{scale or 0} adds {count(scale or 0, 'bit')}."
        )
    return " ".join(told)


def _away(bits: float, side: str, other: str) -> str:
    return f"{abs(bits):g} {'bit' if abs(bits) == 1 else 'bits'} {side if bits >= 0 else other}"


def _headroom_row(name: str, row: dict[str, Any], scale: int) -> list[str]:
    half, brain = row["bits"]["float16"], row["bits"]["bfloat16"]
    low, above = row["gradient_low_exponent"], half["gradients_to_smallest_normal"]
    largest = row["gradient_largest"]
    return [
        name,
        f"{row['largest']:.3g}",
        _said(half["to_largest"]),
        _said(brain["to_largest"]),
        f"{largest:.3g}" if largest is not None else "",
        f"2**{low}" if low is not None else "",
        _said(above),
        _said(above + scale if above is not None else None),
        _said(brain["gradients_to_smallest_normal"]),
    ]


def _said(bits: float | None) -> str:
    return f"{bits:g}" if bits is not None else ""
