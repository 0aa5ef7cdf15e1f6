"""Which workers of a loader have drawn the same random numbers, by where their generators were around each batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import NamedTuple

from torchvet.recording.records.reading import WorkerDraws

_BATCHES = 2
"""Batches that must have drawn: what is drawn for the first one alone may be an order that all workers share."""


class Repeated(NamedTuple):
    """A generator of a loader's that gives the same numbers again."""

    first: WorkerDraws
    workers: int
    """Workers of one epoch that draw the same; 0 where none do."""
    epochs: int
    """Epochs in which a worker draws the same; 0 where each is another."""
    batches: int
    same_items: bool
    """Whether those epochs have asked for the same samples in the same order."""


def repeated(draws: Iterable[WorkerDraws]) -> Iterator[Repeated]:
    """Generators of loaders that are trained on."""
    kept: dict[tuple[int, str], list[WorkerDraws]] = defaultdict(list)
    for one in draws:
        if one.trained:
            kept[one.loader, one.name].append(one)
    for those in kept.values():
        found = _of_one(those)
        if found is not None:
            yield found


def _of_one(draws: list[WorkerDraws]) -> Repeated | None:
    pairs = list(combinations(draws, 2))
    workers = [(a, b) for a, b in pairs if a.epoch == b.epoch and _workers_repeat(a, b)]
    epochs = [(a, b) for a, b in pairs if a.worker == b.worker and _epochs_repeat(a, b)]
    either = workers + epochs
    if not either:
        return None
    batches = min(len(one.drew) for pair in either for one in pair)
    return Repeated(
        first=either[0][0],
        workers=_most_alike(workers),
        epochs=len({one.epoch for pair in epochs for one in pair}),
        batches=batches,
        same_items=bool(epochs) and all(_are_equal(a.items, b.items, batches) for a, b in epochs),
    )


def _most_alike(pairs: list[tuple[WorkerDraws, WorkerDraws]]) -> int:
    """The most workers of an epoch that draw the same as one of them."""
    alike: dict[tuple[int, int], set[int]] = defaultdict(set)
    for a, b in pairs:
        for one in (a, b):
            alike[one.epoch, one.worker] |= {a.worker, b.worker}
    return max(map(len, alike.values()), default=0)


def _workers_repeat(a: WorkerDraws, b: WorkerDraws) -> bool:
    # Workers of an iterable data set draw one order together, of which each takes its part: then the samples differ.
    return _draw_the_same(a, b) and (not a.iterable or _are_equal(a.data, b.data, _BATCHES))


def _epochs_repeat(a: WorkerDraws, b: WorkerDraws) -> bool:
    # A program that seeds torch alike before each epoch asks for it.
    if a.epoch == b.epoch or a.seed == b.seed:
        return False
    if a.iterable and _begin_alike(a, b) and a.drew[0] and b.drew[0] and _are_equal(a.data, b.data, _BATCHES):
        return True
    return _draw_the_same(a, b)


def _begin_alike(a: WorkerDraws, b: WorkerDraws) -> bool:
    return bool(a.drew and b.drew) and a.states[0] == b.states[0]


def _draw_the_same(a: WorkerDraws, b: WorkerDraws) -> bool:
    """Whether both begin at one state and go on from there by drawing, and not by being seeded for each sample."""
    batches = range(min(len(a.drew), len(b.drew)))
    if not _begin_alike(a, b):
        return False
    drawn = [k for k in batches if (a.drew[k] and b.drew[k]) or _in_step(a, b, k)]
    seeded = [k for k in batches if k not in drawn and None in (a.drew[k], b.drew[k])]
    return len(drawn) >= _BATCHES and not seeded


def _in_step(a: WorkerDraws, b: WorkerDraws, batch: int) -> bool:
    """Whether a batch has led both to the same state, although it was one of other samples."""
    after = a.states[batch + 1]
    return after == b.states[batch + 1] and after != a.states[batch] and a.items[batch] != b.items[batch]


def _are_equal(a: list[str], b: list[str], batches: int) -> bool:
    return len(a) >= batches <= len(b) and a[:batches] == b[:batches]
