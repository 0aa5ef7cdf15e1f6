"""What of profiler traces is compared: a step's time by phase, what the device did with it, what it waited for."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from torchvet.comparing.tables import Note, Side, Table, Unit
from torchvet.readers.trace_facts import Cost, RankTrace, Where

KIND = "profiler trace"


def side_of(path: str | PathLike[str]) -> Side:
    """The tables of a trace. Raises `BadInput`."""
    from torchvet.traces.digest import digest

    return side_of_digest(str(path), digest(Path(path)))


def side_of_digest(path: str, rank: RankTrace) -> Side:
    """The tables of one rank's digest. The step's time is all that there is to gate by, and a profiled one is noisy."""
    tables = [_phases(rank), _typical(rank), *_device(rank), _costs(rank), *_memory(rank)]
    notes = [Note(n.check, n.reason) for n in rank.notes]
    return Side(kind=KIND, path=path, tables=[t for t in tables if t is not None], notes=notes)


def _phases(rank: RankTrace) -> Table | None:
    if rank.steps is None:
        return None
    rows = {name: seconds for name, seconds in rank.phases.items() if seconds}
    # A trace without steps is no step: it is held against another such trace, and against no step.
    title = "step by phase" if rank.steps.known else "trace by phase"
    return Table(title=title, unit=_unit(rank), rows=rows, total=rank.steps.seconds, gates=True)


def _unit(rank: RankTrace) -> Unit:
    return "seconds per step" if rank.steps is None or rank.steps.known else "seconds"


def _typical(rank: RankTrace) -> Table | None:
    """The median of the steps, which a few slow ones do not move."""
    if rank.steps is None or not rank.steps.known:
        return None
    return Table(title="median step", unit="seconds per step", rows={}, total=rank.steps.median)


def _device(rank: RankTrace) -> list[Table]:
    gpu = rank.gpu
    if gpu is None:
        return []
    rows = {"compute": gpu.compute, "communication": gpu.communication, "copies": gpu.copies}
    rows |= {f"idle: {why}": seconds for why, seconds in gpu.idle.items()}
    rows = {name: seconds for name, seconds in rows.items() if seconds}
    return [Table(title="device by activity", unit=_unit(rank), rows=rows)]


def _costs(rank: RankTrace) -> Table | None:
    """Waits, transfers and layout copies by what they are and the function that they come from."""
    rows: dict[str, float] = {}
    for cost in (*rank.syncs, *rank.transfers, *rank.layouts):
        rows[_named(cost)] = rows.get(_named(cost), 0.0) + cost.duration
    plain = {name: seconds for name, seconds in rows.items() if seconds}
    return Table(title="waits and copies by function", unit=_unit(rank), rows=plain) if plain else None


def _named(cost: Cost) -> str:
    where: Where | None = cost.where
    return f"{cost.what} in {where.function}" if where is not None else cost.what


def _memory(rank: RankTrace) -> list[Table]:
    peaks = {m.device: float(m.peak) for m in rank.memory}
    return [Table(title="peak by device", unit="bytes", rows=peaks)] if peaks else []
