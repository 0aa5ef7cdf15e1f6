"""The same parameters on several ranks, held side by side: by digests of their bits after the same steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torchvet.rules.kit import RankRecording, records

_AGAIN = 2
"""Looks at which parameters are equal again before they count as being averaged from time to time."""


class Look(NamedTuple):
    """The same parameters after the same step, as each rank has them."""

    step: int
    of_ranks: list[records.ranks.Replicas]
    rows: list[list[records.ranks.Replica]]
    """By parameter: what each rank says of it."""
    parts: int = 0
    """Parameters besides, of which each rank began with values of its own."""
    numbers: tuple[int, ...] = ()
    """The ranks' numbers."""

    def apart(self) -> list[list[records.ranks.Replica]]:
        """The parameters that are not the same everywhere."""
        return [row for row in self.rows if _differ([one.after for one in row])]

    def sharded(self) -> bool:
        """Whether other parameters of the model are shards."""
        return any(p.sharded for one in self.of_ranks for p in one.parameters)


def looks_of(ranks: list[RankRecording], number: int) -> list[Look]:
    """What all ranks looked at of an optimizer's parameters, in the order of steps; those that are sharded, that one
    rank lacks, or that are a part of the model of each rank's own, left out."""
    by_rank = [{r.step: r for r in one.all(records.ranks.Replicas) if r.optimizer == number} for one in ranks]
    steps = sorted(set.intersection(*map(set, by_rank)))
    looks = [_look(step, [known[step] for known in by_rank]) for step in steps]
    numbers = tuple(one.rank for one in ranks)
    return _without_parts([look._replace(numbers=numbers) for look in looks if look.rows])


def _look(step: int, of_ranks: list[records.ranks.Replicas]) -> Look:
    tables = [{(p.name, p.shape): p for p in one.parameters if not p.sharded} for one in of_ranks]
    shared = [key for key in tables[0] if all(key in table for table in tables)]
    return Look(step, of_ranks, [[table[key] for table in tables] for key in shared])


def _without_parts(looks: list[Look]) -> list[Look]:
    """Where ranks began with some parameters alike and with others not, these are shards, without a type that says
    so. Ones and zeros are alike from the start in any case: of those some must be alike after they have changed. Copies
    that a library steps on are shards unless they began alike."""
    looks = _without_copies(looks)
    began_alike = bool(looks) and any(map(_began_alike, looks[0].rows))
    if not began_alike and not _stay_alike(looks):
        return looks
    own = [row for row in looks[0].rows if differ_before([row]) and not row[0].wrapped]
    parts = {_key(row) for row in own if began_alike or not same_gradients([row])}
    return [
        look._replace(rows=[row for row in look.rows if _key(row) not in parts], parts=look.parts + len(parts))
        for look in looks
    ]


def _without_copies(looks: list[Look]) -> list[Look]:
    alike = {_key(row) for row in looks[0].rows if _began_alike(row)} if looks else set()
    kept = [[row for row in look.rows if not row[0].copied or _key(row) in alike] for look in looks]
    return [
        look._replace(rows=rows, parts=len(look.rows) - len(rows))
        for look, rows in zip(looks, kept, strict=True)
        if rows
    ]


def _stay_alike(looks: list[Look]) -> bool:
    """Whether some parameter that began alike was changed by gradients that are the same on all ranks."""
    first = {_key(row): row[0].before for row in looks[0].rows if not differ_before([row])} if looks else {}
    return any(
        first.get(_key(row), row[0].after) not in (None, row[0].after)
        and not _differ([one.after for one in row])
        and same_gradients([row])
        for look in looks
        for row in look.rows
    )


def _key(row: list[records.ranks.Replica]) -> tuple[str, tuple[int, ...]]:
    return row[0].name, row[0].shape


def _began_alike(row: list[records.ranks.Replica]) -> bool:
    """Whether all ranks began with the same random values."""
    return row[0].before is not None and not differ_before([row]) and not row[0].constant


def _differ(digests: list[int | None]) -> bool:
    known = {d for d in digests if d is not None}
    return len(known) > 1


def of_parts(ranks: list[RankRecording]) -> bool:
    """Whether ranks have parts of one model, so that they work on the same batch: shards, slices of layers, stages of
    a pipeline."""
    seen = [r for one in ranks for r in one.all(records.ranks.Replicas)]
    if any(p.sharded for one in seen for p in one.parameters):
        return True
    tables = [looks_of(ranks, number) for number in sorted({one.optimizer for one in seen})]
    return any(not looks or not are_alike(looks) or any(look.parts for look in looks) for looks in tables)


def are_alike(looks: list[Look]) -> bool:
    """Whether ranks have the same model: parts of a pipeline have other names or shapes."""
    look = looks[0]
    return all(len(look.rows) + look.parts >= 0.9 * sum(not p.sharded for p in one.parameters) for one in look.of_ranks)


def are_averaged(looks: list[Look]) -> bool:
    """Whether ranks come together again and again: local steps between averages are meant to differ."""
    states = [not look.apart() for look in looks]
    first = states.index(False)
    return sum(states[first:]) >= _AGAIN


def were_wrapped(first: Look, looks: Sequence[Look]) -> bool:
    """Whether DistributedDataParallel has, or had at another step, what parted."""
    known = any(one.wrapped or one.late for row in first.apart() for one in row)
    return known or wrapped_at_times(first, looks)


def wrapped_at_times(first: Look, looks: Sequence[Look]) -> bool:
    """Whether what parted outside of DistributedDataParallel was in it at another step."""
    parted = {_key(row) for row in first.apart() if not any(one.wrapped for one in row)}
    return any(_key(row) in parted and all(one.wrapped for one in row) for look in looks for row in look.rows)


def differ_before(rows: list[list[records.ranks.Replica]]) -> bool:
    """Whether ranks began with values of their own."""
    return any(_differ([one.before for one in row]) for row in rows)


def same_gradients(rows: list[list[records.ranks.Replica]]) -> bool:
    """Whether ranks have the same gradients: somebody has made them so."""
    known = [[one.gradient for one in row] for row in rows if all(one.gradient is not None for one in row)]
    return bool(known) and not any(map(_differ, known))


def clipping_parts(rows: list[list[records.ranks.Replica]]) -> bool:
    """Whether gradients were the same on all ranks before they were clipped, and are not as the step begins. A rank
    that did not clip them has them as they were."""
    known = [row for row in rows if any(one.unclipped is not None for one in row)]
    before = [[one.gradient if one.unclipped is None else one.unclipped for one in row] for row in known]
    return bool(known) and _were_alike(known, before)


def parted_after_pass(rows: list[list[records.ranks.Replica]]) -> bool | None:
    """Whether gradients that differ as the step begins were the same on all ranks when the backward pass had ended;
    None where that is not known."""
    known = [row for row in rows if all(one.passed is not None for one in row)]
    return _were_alike(known, [[one.passed for one in row] for row in known]) if known else None


def _were_alike(rows: list[list[records.ranks.Replica]], earlier: list[list[int | None]]) -> bool:
    return not any(map(_differ, earlier)) and any(_differ([one.gradient for one in row]) for row in rows)
