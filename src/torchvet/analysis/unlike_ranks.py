"""What ranks run with, held side by side: code, versions, environment, seeds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from torchvet.formatting import count
from torchvet.recording import RankRecording
from torchvet.recording.records.base import Source
from torchvet.recording.records.ranks import Surroundings

NOT_SET = "not set"
_DEVICES = "CUDA_VISIBLE_DEVICES"
T = TypeVar("T", bound=Hashable)


class UnlikeFile(NamedTuple):
    """A module of the program's whose text is not the same on all ranks: the ranks by text, the most common first; the
    file of a rank that has another, and the first line of it that differs."""

    module: str
    ranks: list[list[int]]
    other: RankRecording
    path: str
    line: int


def unlike_files(ranks: Sequence[RankRecording]) -> list[UnlikeFile]:
    """The program's modules of which ranks have different texts. A module that one rank alone has imported is none."""
    kept = {one.rank: {s.module or s.path: s for s in one.all(Source)} for one in ranks}
    names = dict.fromkeys(name for sources in kept.values() for name in sources)
    found = [
        _unlike_file(name, {one: kept[one.rank][name] for one in ranks if name in kept[one.rank]}) for name in names
    ]
    return [one for one in found if one is not None]


def _unlike_file(name: str, sources: dict[RankRecording, Source]) -> UnlikeFile | None:
    groups = _by_value(sources, lambda one: sources[one].text)
    if len(groups) < 2:
        return None
    most, other = groups[0][0], groups[1][0]
    texts = (sources[one].text.splitlines() for one in (most, other))
    pairs = enumerate(itertools.zip_longest(*texts), start=1)
    line = next((number for number, (one, another) in pairs if one != another), 1)
    numbers = [sorted(one.rank for one in group) for group in groups]
    return UnlikeFile(name, numbers, other, sources[other].path, line)


def unlike_versions(ranks: Sequence[RankRecording]) -> dict[str, dict[str, list[int]]]:
    """The libraries of which ranks have different versions: the ranks by version."""
    return _unlike(ranks, lambda about: about.versions, missing=None)


def unlike_variables(ranks: Sequence[RankRecording]) -> dict[str, dict[str, list[int]]]:
    """The variables of the environment that differ: the ranks by value. Of devices their number counts: a launcher may
    give each rank one of its own."""

    def values(about: Surroundings) -> dict[str, str]:
        own = dict(about.variables)
        if _DEVICES in own:
            own[_DEVICES] = count(sum(bool(name.strip()) for name in own[_DEVICES].split(",")), "device")
        return own

    return _unlike(ranks, values, missing=NOT_SET)


def unlike_facts(ranks: Sequence[RankRecording]) -> dict[str, Any]:
    """The same for a report, with the seeds that torch began with. Ranks may well share one, or have one each."""
    known = [(one.rank, about.seed) for one in ranks if (about := one.last(Surroundings)) is not None]
    seeds = {rank: seed for rank, seed in known if seed is not None}
    rows = [
        *({"kind": "code", "name": f.module, "ranks": f.ranks} for f in unlike_files(ranks)),
        *({"kind": "version", "name": name, "values": of} for name, of in unlike_versions(ranks).items()),
        *({"kind": "variable", "name": name, "values": of} for name, of in unlike_variables(ranks).items()),
    ]
    return {"unlike": rows, "seeds": _ranks_by(seeds)}


def _unlike(
    ranks: Iterable[RankRecording], values: Callable[[Surroundings], dict[str, str]], missing: str | None
) -> dict[str, dict[str, list[int]]]:
    """By name the ranks of each value, where there are several. A rank that has none has the value `missing`."""
    tables = {one.rank: values(about) for one in ranks if (about := one.last(Surroundings)) is not None}
    found: dict[str, dict[str, list[int]]] = {}
    for name in sorted({name for table in tables.values() for name in table}):
        own = {rank: table.get(name, missing) for rank, table in tables.items()}
        grouped = _ranks_by({rank: value for rank, value in own.items() if value is not None})
        if len(grouped) > 1:
            found[name] = grouped
    return found


def _ranks_by(values: dict[int, Any]) -> dict[str, list[int]]:
    return {str(values[group[0]]): group for group in _by_value(values, lambda rank: values[rank])}


def _by_value(items: Iterable[T], value: Callable[[T], Hashable]) -> list[list[T]]:
    """Groups of items with one value each, the largest first."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(value(item), []).append(item)
    return sorted(groups.values(), key=len, reverse=True)
