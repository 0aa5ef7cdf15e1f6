"""Builds recordings by hand: a few lines say what a run wrote down."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import (
    Census,
    Holding,
    Place,
    Program,
    Record,
    Site,
    SiteBytes,
    Step,
    StepKind,
    Survivors,
    Window,
)
from torchvet.recording.records.training import HostSamples, Outcome

MAIN = "__main__.main"
FILE = "/project/train.py"
GIB = 1 << 30


def program(**changes: Any) -> Program:
    """What ran: a CPU run with a limit of 1 GiB."""
    facts: dict[str, Any] = {
        "argv": ["train.py"], "path": FILE, "cwd": "/work", "python": "3.11.7", "torch": "2.13.0", "device": "cpu",
        "started": 0.0, "pid": 1, "memory_limit": GIB, "memory_limit_source": "this machine's memory",
    }  # fmt: skip
    return Program(**{**facts, **changes})


def steps(count: int, kind: StepKind = "training", start: int = 1) -> list[Record]:
    """One record a step."""
    return [Step(n=n, kind=kind, t=n * 0.1) for n in range(start, start + count)]


def holding(name: str, direct: int = 0, graph: int = 0, *, scope: str = MAIN, **more: Any) -> Holding:
    """`name` as hops separated by spaces: `"trainer .stats .losses"`; a tensor or a node for every ten bytes."""
    hops = name.split(" ")
    facts: dict[str, Any] = {
        "kind": "attribute" if len(hops) > 1 else "local", "container": "list", "visible": direct,
        "place": Place(FILE, 1, "main"), "files": [FILE], "tensors": direct // 10, "nodes": graph // 10,
    }  # fmt: skip
    path = [f"{scope}: {hops[0]}", *hops[1:]]
    return Holding(name="".join(hops), path=path, scope=scope, direct=direct, graph=graph, **{**facts, **more})


def census(tick: int, *held: Holding, other: int = 1000, **more: Any) -> Census:
    """A complete census; `total` is the outermost names' bytes and `other`."""
    roots = [h for h in held if len(h.path) == 1 or not any(o.path == h.path[:-1] for o in held)]
    total = other + sum(h.direct + h.graph + h.ctx for h in roots)
    facts: dict[str, Any] = {"kind": "training", "seconds": 0.1, "complete": True, "total": total}
    return Census(tick=tick, holdings=list(held), **{**facts, **more})


def survivors(window: int, tick: int, amount: int, *, per: int = 2) -> Survivors:
    """`amount` bytes of a window of `per` steps are alive at `tick`."""
    return Survivors(window=window, tick=tick, steps=per, bytes=amount, storages=1)


def window(number: int, first: int, last: int, peak: int = 5000) -> Window:
    """A sampled window."""
    return Window(id=number, first=first, last=last, kind="training", born=peak, peak=peak)


def heap(ticks: int, grows: float = 0.0, start: int = 1) -> HostSamples:
    """The heap at every boundary: 100 MB, and so many bytes more each step."""
    numbers = list(range(start, ticks + 1))
    return HostSamples(ticks=numbers, heap=[100_000_000 + int(grows * n) for n in numbers])


def evidence(ticks: int) -> list[Record]:
    """What a clean verdict rests on besides steps: two windows of which nothing lived on, and a flat heap."""
    return [window(1, 2, 3), window(2, 5, 6), heap(ticks)]


def outcome(ticks: int, how: Any = "finished", **more: Any) -> Outcome:
    """How it ended."""
    return Outcome(how=how, status=0, ticks=ticks, seconds=1.0, **more)


def site(op: str = "aten.addmm", line: int = 7, size: int = 400) -> SiteBytes:
    """Storages of one line."""
    where = Place(FILE, line, "main")
    return SiteBytes(site=Site(op=op, shape=(10, 10), dtype="float32", device="cpu", place=where), bytes=size)


def rank(*records: Record | Iterable[Record], number: int = 0, damaged: int = 0) -> RankRecording:
    """One rank's records; lists are flattened."""
    lines: list[Record] = []
    for record in records:
        lines.extend([record] if isinstance(record, Record) else record)
    return RankRecording(number, lines, damaged)


def recording(*records: Record | Iterable[Record], damaged: int = 0) -> Recording:
    """A run on one rank."""
    return Recording([rank(*records, damaged=damaged)])
