"""Charts of runs that torchvet made to compare them: `amp`, `whatif`, `fix --verify`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torchvet.charts import Chart, Mark, Series, only
from torchvet.finding import Report
from torchvet.formatting import ms
from torchvet.renderers.places import at
from torchvet.renderers.text_whatif import dies
from torchvet.renderers.wording import limit, size

Draw = tuple[str, Callable[[], Chart | None]]


def charts_of_trials(report: Report) -> list[Draw]:
    """What can be drawn, by name; empty for a report of another kind."""
    kind = report.subject.get("kind")
    facts = report.part(str(kind))
    if not facts:
        return []
    if kind == "amp":
        return [("time by precision", partial(_times, facts)), ("memory by precision", partial(_peaks, facts))]
    if kind == "whatif":
        return [("memory over the steps", partial(_memory, facts)), ("when memory ends", partial(_ends, facts))]
    if kind == "fix":
        rows = facts.get("proven", [])
        return [("growth with the fixes", partial(_growth, rows)), ("time with the fixes", partial(_seconds, rows))]
    return []


def _amounts(rows: list[dict[str, Any]], key: str) -> list[float | None]:
    return [float(row[key]) if row[key] is not None else None for row in rows]


# amp ------------------------------------------------------------------------------------------------------------


def _times(facts: dict[str, Any]) -> Chart | None:
    rows = [row for row in facts["modes"] if row["seconds"] is not None]
    if not rows:
        return None
    told = [f"{ms(row['seconds'])} in {row['mode']}" for row in rows]
    return Chart(
        id="time",
        title="Time of a step in each precision",
        kind="bars",
        caption=f"A step takes {', '.join(told)}.",
        unit="seconds",
        labels=[row["mode"] for row in rows],
        series=[Series(name="a step", role="forward", x=[], y=[row["seconds"] for row in rows], style="bar")],
        columns=["precision", "a step", "from", "to"],
        rows=[[row["mode"], ms(row["seconds"]), *(ms(value) for value in row["spread"])] for row in rows],
    )


def _peaks(facts: dict[str, Any]) -> Chart | None:
    rows = [row for row in facts["modes"] if row["peak_bytes"]]
    if not rows:
        return None
    most = max(rows, key=lambda row: int(row["peak_bytes"]))
    copies = f" Autocast's half copies of the weights take up to {size(facts['weight_copies'])}."
    return Chart(
        id="memory",
        title="Memory in each precision",
        kind="bars",
        caption=f"The peak is highest in {most['mode']}: {size(most['peak_bytes'])}.{copies}",
        unit="bytes",
        labels=[row["mode"] for row in rows],
        series=[
            Series(name="peak", role="other", x=[], y=_amounts(rows, "peak_bytes"), style="bar"),
            Series(
                name="activations in it",
                role="activations",
                x=[],
                y=_amounts(rows, "activation_bytes"),
                style="bar",
            ),
        ],
        columns=["precision", "peak", "activations"],
        rows=[[row["mode"], size(row["peak_bytes"]), size(row["activation_bytes"] or 0)] for row in rows],
    )


# whatif ---------------------------------------------------------------------------------------------------------


def _memory(facts: dict[str, Any]) -> Chart:
    """What a step takes and what grows, up to where memory ends, or as far again as was measured."""
    end = facts["answers"][0]["first"]
    last = float(max(facts["steps"], end or 2 * facts["steps"], 2))
    batch, growth = float(facts["batch_bytes"]), float(facts["bytes_per_step"])
    parts = [
        ("does not change with the batch", "parameters", [facts["base_bytes"] - batch] * 2),
        ("changes with the batch, at most", "activations", [batch] * 2),
        ("grows", "growing", [growth, growth * last]),
    ]
    room, known = facts["room_bytes"], facts["memory_limit"]["bytes"]
    marks = [Mark(y=float(room), label=f"room for tensors: {size(room)}", calm=end is None)] if room else []
    # Further up it would press all else to the ground.
    near = room and known and room + known <= 4 * (facts["base_bytes"] + growth * last)
    marks += [Mark(y=float(room + known), label=f"twice the memory: {limit(2 * known)}", calm=True)] if near else []
    marks += [Mark(x=float(end), label=f"memory ends at step {end:,}")] if end is not None else []
    return Chart(
        id="memory",
        title="Memory over the steps, as it is",
        kind="lines",
        caption=f"At first a step takes {size(facts['base_bytes'])}, of which at most {size(batch)} change with the "
        f"batch. {f'{size(growth)} more stay from each step' if growth else 'Nothing grows'}.",
        x_title=f"{facts['step_kind']} step",
        unit="bytes",
        series=[Series(name=n, role=r, x=[1.0, last], y=[*y], style="area") for n, r, y in parts if max(y) > 0],
        marks=marks,
        notes=[f"from the {facts['steps']:,} steps that ran; later ones are a forecast"],
        columns=["what", "at step 1", f"at step {last:,.0f}"],
        rows=[[name, *(size(value) for value in y)] for name, _, y in parts],
    )


def _ends(facts: dict[str, Any]) -> Chart | None:
    """The step at which memory ends with each change, or its bounds."""
    answers = facts["answers"]
    rows = [row for row in answers if row["first"] is not None or row["last"] is not None]
    if not rows:
        return None
    never = [row["asked"] for row in answers if dies(row) == "never"]
    unknown = [row["asked"] for row in answers if not row["known"]]
    longest = max(rows, key=lambda row: row["last"] or row["first"])
    sides = [("at the earliest", "before", "first"), ("at the latest", "after", "last")]
    notes = only(bool(never), f"memory never ends with: {', '.join(never)}")
    notes += only(bool(unknown), f"not known: {', '.join(unknown)}")
    notes += only(any(row["last"] is None for row in rows), "one bar only: at the latest, memory never ends")
    return Chart(
        id="ends",
        title="When memory ends with each change",
        kind="bars",
        caption=f"Of what ends at all, \u201c{longest['asked']}\u201d lasts longest: step {dies(longest)}.",
        x_title="step",
        labels=[row["asked"] for row in rows],
        series=[Series(name=n, role=role, x=[], y=_amounts(rows, key), style="bar") for n, role, key in sides],
        notes=notes,
        columns=["change", "ends at step", "costs"],
        rows=[[row["asked"], dies(row), row["costs"]] for row in answers],
    )


# fix ------------------------------------------------------------------------------------------------------------


def _growth(rows: list[dict[str, Any]]) -> Chart | None:
    known = [row for row in rows if row.get("bytes_per_step")]
    if not known:
        return None
    worst = max(known, key=lambda row: float(row["bytes_per_step"][0]))
    was, now = worst["bytes_per_step"]
    return Chart(
        id="growth",
        title="Growth before and after each fix",
        kind="bars",
        caption=f"{_name(worst)}: {size(was)} a step before, {size(now)} after.",
        x_title="bytes per step",
        unit="bytes",
        labels=[_name(row) for row in known],
        series=_before_and_after([row["bytes_per_step"] for row in known]),
        columns=["fix", "before", "after"],
        rows=[[_name(row), row["before"], row["after"]] for row in known],
    )


def _seconds(rows: list[dict[str, Any]]) -> Chart | None:
    known = [row for row in rows if all(row["seconds_per_step"])]
    if not known:
        return None
    was, now = known[0]["seconds_per_step"]
    return Chart(
        id="time",
        title="Time of a step before and after",
        kind="bars",
        caption=f"A step took {ms(was)} before and {ms(now)} after, as medians of one run each: no proof.",
        unit="seconds",
        labels=[_name(row) for row in known],
        series=_before_and_after([row["seconds_per_step"] for row in known]),
        notes=only(len(known) > 1, "fixes that were tried together have one run, and one time"),
        columns=["fix", "before", "after"],
        rows=[[_name(row), *(ms(value) for value in row["seconds_per_step"])] for row in known],
    )


def _before_and_after(pairs: list[list[float]]) -> list[Series]:
    sides = enumerate(("before", "after"))
    return [Series(name=side, role=side, x=[], y=[float(p[n]) for p in pairs], style="bar") for n, side in sides]


def _name(row: dict[str, Any]) -> str:
    return f"{row['code']} {at(row['path'], row['line'])}" if row.get("path") else str(row["code"])
