"""The ranks of a run as a table, and which of them stand out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rich.cells import cell_len

from torchvet.formatting import ms
from torchvet.renderers.page import LABEL, Page, padded
from torchvet.renderers.places import at
from torchvet.renderers.wording import count, percent, printable, seconds, size

SHOWN, OUTLIERS = 16, 4
"""Rows and ranks that stand out that are shown; JSON has all of them."""

_Column = tuple[str, Callable[[dict[str, Any]], str]]


def add_ranks(page: Page, facts: dict[str, Any]) -> None:
    """A row for each rank; nothing for a program of one process."""
    rows = facts.get("ranks") or []
    if not rows:
        return
    shown = sorted(rows, key=lambda row: (row["host"], row["rank"]))[:SHOWN]
    title, *lines = _table(shown, several_hosts=len({row["host"] for row in rows}) > 1)
    page.labelled("ranks", title, 1)
    for line in lines:
        page.verbatim(line, indent=LABEL)
    page.more(len(rows) - len(shown))
    for one in (facts.get("outliers") or [])[:OUTLIERS]:
        page.paragraph(stands_out(one, f"rank {one['rank']}", "ranks"), indent=LABEL, hang=2, most=2)
    for text in (*_stuck(rows), *_unlike(facts)):
        page.paragraph(text, indent=LABEL, hang=2, most=2)


def _stuck(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Processes that did not end with their program: torchvet's work in them was done."""
    for row in [row for row in rows if row.get("stuck")][:OUTLIERS]:
        one = row["stuck"]
        place, call = one["place"], f" in `{one['call']}`" if one["call"] else ""
        where = (
            f"at {at(place['path'], place['line'])}{call}" if place else "in destructors, with no Python left to run"
        )
        late = seconds(one["seconds"])
        yield f"the program of rank {row['rank']} had ended; {late} later its process had not: it stood {where}"


def _unlike(facts: dict[str, Any]) -> Iterator[str]:
    """What ranks have that is not the same, but for code, of which a finding tells; and what torch was seeded with."""
    for row in facts.get("unlike") or []:
        if row["kind"] != "code":
            yield f"{row['name']} is not the same: {_by_rank(row['values'], len(facts['ranks']))}"
    if facts.get("seeds"):
        yield f"torch's seed: {_by_rank(facts['seeds'], len(facts['ranks']))}"


def _by_rank(values: dict[str, list[int]], count: int) -> str:
    parts = [f"{value} on {_names(ranks, count)}" for value, ranks in list(values.items())[:OUTLIERS]]
    more = len(values) - OUTLIERS
    return ", ".join(parts) + (f", and {more} more values" if more > 0 else "")


def _names(ranks: list[int], count: int) -> str:
    if len(ranks) == count:
        return f"all {count} ranks"
    named = [str(rank) for rank in ranks[:OUTLIERS]]
    more = f" and {len(ranks) - OUTLIERS} more" if len(ranks) > OUTLIERS else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(named)}{more}"


def _table(rows: list[dict[str, Any]], several_hosts: bool) -> list[str]:
    """The columns that say something, the titles first."""
    columns = [column for column in _COLUMNS if any(column[1](row) for row in rows)]
    if several_hosts:
        columns.insert(0, ("host", lambda row: str(row["host"])))
    texts = [[title, *map(text, rows)] for title, text in columns]
    widths = [max(cell_len(printable(text)) for text in column) for column in texts]
    lines = ([padded(t, w) for t, w in zip(line, widths, strict=True)] for line in zip(*texts, strict=True))
    return ["  ".join(line).rstrip() for line in lines]


def _amount(name: str, write: Callable[[float], str]) -> Callable[[dict[str, Any]], str]:
    return lambda row: "" if row[name] is None else write(row[name])


def _ended(row: dict[str, Any]) -> str:
    how, status = row["how"], row["status"] or 0
    if how is None:
        return "not seen to end"
    if how == "killed" and status < 0:
        return f"killed by signal {-status}"
    return "" if how == "finished" else str(how).replace("-", " ")


def _data(row: dict[str, Any]) -> str:
    share = row["phases"].get("data")
    return percent(share) if share else ""


_COLUMNS: list[_Column] = [
    ("rank", lambda row: str(row["rank"])),
    ("steps", lambda row: count(row["steps"])),
    ("a step", _amount("seconds_per_step", ms)),
    ("data", _data),
    ("peak", _amount("peak_bytes", size)),
    ("grows a step", _amount("bytes_per_step", lambda n: size(n) if n > 0 else "")),
    ("ended", _ended),
]
_NAMES: dict[str, tuple[str, Callable[[float], str]]] = {
    "seconds_per_step": ("takes", ms),
    "peak_bytes": ("has a peak of", size),
    "bytes_per_step": ("grows per step by", size),
    "heap_per_step": ("has a heap that grows per step by", size),
    "reserved_bytes": ("has reserved", size),
    "busy_share": ("keeps its device busy for", percent),
}


def stands_out(one: dict[str, Any], who: str, others: str) -> str:
    """What `who` has that all the `others` have not."""
    what, write = _NAMES[one["column"]]
    a_step = " a step" if one["column"] == "seconds_per_step" else ""
    return f"{who} {what} {write(one['value'])}{a_step}; the median of all {others} is {write(one['median'])}"
