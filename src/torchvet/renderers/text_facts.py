"""The facts of a report as text: how far it ran, the peak by category, the time by phase, torchvet's own cost."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from rich.cells import cell_len

from torchvet.finding import Report
from torchvet.formatting import ms, rank_names
from torchvet.renderers.markdown_text import escaped
from torchvet.renderers.page import LABEL, Page, crop, padded
from torchvet.renderers.places import at
from torchvet.renderers.sections.amounts import add_amounts
from torchvet.renderers.sections.dry import add_dry
from torchvet.renderers.sections.forecast import add_forecast
from torchvet.renderers.sections.ranks import add_ranks
from torchvet.renderers.sections.snapshot import add_snapshot
from torchvet.renderers.verdict import failed_at
from torchvet.renderers.wording import count, limit, percent, printable, seconds, size

_BUSY = 0.1
"""The difference between runs of the same program from which on it is said."""
CATEGORIES, PROBES, SNAPSHOTS, PROCESSES, LINES = 8, 5, 4, 4, 5
"""How many of each are shown; JSON has all of them."""
_LEAST_SHARE = 0.03
"""Of a step: lines that take less are not shown."""
_WIDEST_PLACE = 40
_DRIFTS = 1.3
"""How many times longer the last steps took than the first where that is said."""


def add_facts(page: Page, report: Report) -> None:
    """The section of facts; each is optional, and a missing one has no line."""
    seen = page.part()
    _add_lines(seen, report, report.facts)
    snapshots = report.facts.get("snapshots") or []
    for snapshot in snapshots[:SNAPSHOTS]:
        add_snapshot(seen, snapshot, len(snapshots) > 1)
    seen.more(len(snapshots) - SNAPSHOTS)
    of_rank = report.subject.get("kind") == "run" and report.facts.get("rank") is not None
    page.section(f"What was seen (rank {report.facts['rank']})" if of_rank else "What was seen", seen)


def _add_lines(page: Page, report: Report, facts: dict[str, Any]) -> None:
    def part(name: str) -> dict[str, Any]:
        return facts.get(name) or {}

    _line(page, "program", shlex.join(map(str, report.subject.get("argv") or [])))
    if not facts.get("ranks"):
        _line(page, "processes", _processes(facts.get("processes") or []))
    _line(page, "steps", "" if facts.get("snapshots") else _steps(facts))
    _line(page, "time", _phases(part("phases")))
    if facts.get("time"):
        _add_time(page, facts["time"], bool(facts.get("simulated_gpu")))
    if report.subject.get("kind") == "run":
        add_ranks(page, facts)
    for one in facts.get("absent") or []:
        _line(page, "missing", f"{rank_names(one['ranks'])}: {one['reason']}")
    _add_peak(page, part("peak"), part("growth"))
    if facts.get("dry"):
        add_dry(page, facts["dry"], facts["peak"]["bytes"])
    _line(page, "growth", _growth(part("growth")))
    _line(page, "host", _host(part("host")))
    _line(page, "limit", _limit(part("memory_limit")))
    if facts.get("tried"):
        _add_tried(page, facts["tried"])
    if facts.get("precision_forecast"):
        add_forecast(page, facts["precision_forecast"])
    for restart in facts.get("restarts") or []:
        _line(page, "before", f"{_outcome(restart)}; the launcher started all ranks again")
    _line(page, "ended", _outcome(part("outcome")))
    _line(page, "with", _versions(facts))
    _line(page, "own cost", _overhead(report.overhead))


def _line(page: Page, label: str, text: str) -> None:
    if text:
        page.labelled(label, text, 3)


def _processes(processes: list[dict[str, Any]]) -> str:
    """The processes that trained, the first few by name."""
    trained = [p for p in processes if p["steps"]]
    if not processes:
        return ""
    names = [f"{_who(p)}: {count(p['steps'], 'step')}" for p in trained[:PROCESSES]]
    if len(trained) > PROCESSES:
        names.append(f"{len(trained) - PROCESSES} more")
    return f"{len(trained)} of {len(processes)} trained ({', '.join(names)})"


def _who(process: dict[str, Any]) -> str:
    return f"process {process['pid']}" if process["rank"] is None else f"rank {process['rank']}"


def _steps(facts: dict[str, Any]) -> str:
    kinds = {k: n for k, n in (facts.get("step_kinds") or {}).items() if n} or {"": facts.get("steps") or 0}
    if not any(kinds.values()):
        return ""
    parts = [count(n, f"{kind} step".strip()) for kind, n in kinds.items()]
    # The time of the whole run, start and imports included: dividing it by the steps would mislead.
    whole = f"; the run took {seconds(facts['seconds'])}" if facts.get("seconds") is not None else ""
    return ", ".join(parts) + whole


def _phases(phases: dict[str, float]) -> str:
    shares = sorted(((share, name) for name, share in phases.items() if share > 0), reverse=True)
    return ", ".join(f"{name} {percent(share)}" for share, name in shares)


def _add_time(page: Page, time: dict[str, Any], simulated: bool) -> None:
    """How long a step takes, and which lines; of the simulated GPU they are its own time, and no card's."""
    text = _step_times(time)
    if simulated and text:
        text += "; the time of the simulation, not of a card"
    if text:
        page.labelled("a step", text, 3)
    rows = [line for line in time.get("lines") or [] if line["share"] >= _LEAST_SHARE][:LINES]
    names = [f"{at(row['path'], row['line'])} {row['function']}" for row in rows]
    widest = min(max(map(cell_len, map(printable, names)), default=0), _WIDEST_PLACE)
    if rows:
        page.labelled("most of it", "by line, from the watched steps", 1)
    for name, row in zip(names, rows, strict=True):
        text = f"{padded(name, widest)}  {ms(row['seconds_per_step']):>9}  {percent(row['share']):>5}"
        room = page.room(LABEL + cell_len(text) + 2)
        page.verbatim(text + (f"  {crop(row['code'], room)}" if row["code"] and room > 8 else ""), indent=LABEL)


def _step_times(time: dict[str, Any]) -> str:
    parts = []
    if time.get("median") is not None:
        parts.append(f"{ms(time['median'])} (median; nine of ten take up to {ms(time['p90'])})")
    elif time.get("seconds_per_step") is not None:
        parts.append(f"{ms(time['seconds_per_step'])} on the average")
    if time.get("samples_per_second"):
        rate, each = count(time["samples_per_second"], "sample"), count(time["samples_per_step"])
        parts.append(f"{rate} a second, {each} a step")
    first = time.get("first_steps") or []
    if parts and first:
        parts.append(f"the first took {ms(max(first))}")
    drift = time.get("drift")
    if parts and drift and not 1 / _DRIFTS < drift < _DRIFTS:
        parts.append(f"the last third took {drift:.2f} times as long as the first")
    return "; ".join(parts)


def _add_peak(page: Page, peak: dict[str, Any], growth: dict[str, Any]) -> None:
    total = peak.get("bytes")
    if not total:
        return
    # A sampled step counts its own storages and the persistent state, but nothing that earlier steps leaked.
    grows = (growth.get("bytes_per_step") or 0) > 0
    _line(page, "peak", size(total) + (" in a step, without what the steps before it left behind" if grows else ""))
    categories = sorted((peak.get("categories") or {}).items(), key=lambda c: -c[1])
    add_amounts(page, [(name, held, "") for name, held in categories if held][:CATEGORIES], total)


def _growth(growth: dict[str, Any]) -> str:
    rate = growth.get("bytes_per_step")
    if rate is None:
        return ""
    if rate <= 0:
        return "none: what a step allocates is freed again"
    share, rest = growth.get("explained_share"), growth.get("unexplained_bytes_per_step")
    text = f"{size(rate)} per step"
    if share is not None:
        text += f", {percent(share)} of it explained"
    return text + (f"; {size(rest)} per step has no name" if rest and rest >= 1 else "")


def _host(host: dict[str, Any]) -> str:
    parts = [("resident set", host.get("resident_per_step")), ("heap", host.get("heap_per_step"))]
    return ", ".join(f"{name} {'+' if n > 0 else ''}{size(n)} per step" for name, n in parts if n is not None)


def _limit(allowed: dict[str, Any]) -> str:
    if not allowed.get("bytes"):
        return ""
    source = f" ({allowed['source']})" if allowed.get("source") else ""
    return f"{limit(allowed['bytes'])} of memory{source}"


def _outcome(outcome: dict[str, Any]) -> str:
    how = outcome.get("how")
    if not how or (how == "finished" and not outcome.get("status")):
        return ""
    error = f": {outcome['error']}" if outcome.get("error") else ""
    who = f"rank {outcome['rank']}: " if outcome.get("rank") is not None else ""
    return f"{who}{str(how).replace('-', ' ')}{failed_at(outcome)}, exit status {outcome.get('status')}{error}"


def _versions(facts: dict[str, Any]) -> str:
    simulated = facts.get("simulated_gpu")
    device = f"{facts.get('device')}, simulated: {simulated}" if simulated else facts.get("device")
    named = [("torch", facts.get("torch")), ("Python", facts.get("python")), ("on", device)]
    return ", ".join(f"{name} {value}" for name, value in named if value)


def _overhead(overhead: dict[str, Any]) -> str:
    ratio, spent = overhead.get("ratio"), overhead.get("seconds")
    parts = [f"{seconds(spent)} of the run"] if spent is not None else []
    parts += [f"{ratio:.2f} times the program alone"] if ratio is not None else []
    steps = overhead.get("steps_ratio")
    parts += [f"its steps {steps:.2f} times"] if steps is not None else []
    probes = sorted((overhead.get("by_probe") or {}).items(), key=lambda p: -p[1])[:PROBES]
    detail = f" ({', '.join(f'{name} {seconds(took)}' for name, took in probes if took > 0)})" if probes else ""
    return ", ".join(parts) + detail if parts else ""


def _add_tried(page: Page, tried: dict[str, Any]) -> None:
    """The section's lines."""
    page.labelled("tried", f"a step takes {seconds(tried['seconds_per_step'])} as it is; with one change at a time:", 2)
    for text in tried_texts(tried):
        page.paragraph(text, indent=LABEL, hang=2, most=2)


def tried_texts(tried: dict[str, Any]) -> Iterator[str]:
    """A line for each change, and one for those that there was no time for."""
    noise = tried["noise"]
    if noise > _BUSY:
        yield f"runs of the unchanged program differ by {percent(noise)}: smaller differences mean nothing here"
    for row in tried["rows"]:
        where = f" (line {row['line']})" if row["line"] else ""
        yield f"{row['told']}{where}: {_result(row, noise)}"
    if tried["untried"]:
        yield f"no time for: {', '.join(tried['untried'])} (--try-budget gives more)"


def _result(row: dict[str, Any], noise: float) -> str:
    if row["error"] or row["gain"] is None:
        return f"failed: {row['error'] or 'no step was timed'}"
    gain = row["gain"]
    measured = f"measured {gain:.2f}x ({seconds(row['seconds_per_step'])} a step)"
    if gain < 1 + noise:
        return f"{measured}: not worth it" if gain < 1 - noise else f"{measured}: no difference"
    return measured + ("; losses change" if row["same_losses"] is False else "")


def tried_section(tried: dict[str, Any]) -> str:
    """The same as Markdown."""
    title = f"### Tried: a step takes {seconds(tried['seconds_per_step'])} as it is"
    return "\n".join([title, "", *(f"- {escaped(text)}" for text in tried_texts(tried))])
