"""Finds sorts of which only the first or the last few are used, and times `topk` in their place after the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import names
from torchvet.probes.base.ledger import Line, place_of_line
from torchvet.probes.internals import private
from torchvet.probes.time.real_time import clocked, medians, plain_torch
from torchvet.probes.time.results.reach import Part, part_of
from torchvet.probes.time.results.reading import Call, ResultsWatcher, Site
from torchvet.recording.records.timing import SortedForFew

_LEAST = 1 << 12
"""Elements below which a sort takes next to no time."""
_PART = 4
"""Of a row at most one in so many is used, where they are few. Chosen, not measured."""
_MOST_BYTES = 64 << 20
"""Of what is made for one line. The program may have left little memory."""
_COPIES = 4
"""Tensors as large as what is sorted that are alive at once, about."""
_SECONDS = 0.4


class Sorted(NamedTuple):
    """What is sorted: so many rows of so many elements, along a dimension with this stride."""

    rows: int
    size: int
    stride: int
    dtype: torch.dtype
    descending: bool
    stable: bool


class Few(NamedTuple):
    """How many are used of what is sorted, counted from the beginning and from the end of the order."""

    form: Sorted
    head: int
    tail: int


class SortsForFew(ResultsWatcher[Sorted, Few]):
    """Sorts of which only the first or the last few are used."""

    check = "sorts of which a few are used"
    operators = names("sort")

    def matters(self, user: Line, args: Any, made: Sequence[torch.Tensor]) -> bool:
        """See `ResultsWatcher`."""
        return len(made) == 2 and made[0].numel() >= _LEAST

    def given(
        self, name: str, args: Any, kwargs: Any, made: Sequence[torch.Tensor]
    ) -> tuple[Sorted, list[Part]] | None:
        """See `ResultsWatcher`. Results that the program holds are written: who reads them is not known."""
        told = {**dict(zip(("dim", "descending"), args[1:], strict=False)), **kwargs}
        parts = [part_of(one, told.get("dim", -1)) for one in made] if "values" not in kwargs else [None]
        known = [part for part in parts if part is not None]
        if len(known) < len(made):
            return None
        size, stride, _ = known[0].axis
        rows, descending, stable = made[0].numel() // size, bool(told.get("descending")), bool(told.get("stable"))
        return Sorted(rows, size, stride, made[0].dtype, descending, stable), known

    def used(self, call: Call[Sorted]) -> Few | None:
        """See `ResultsWatcher`."""
        head, tail = max(part.head for part in call.parts), max(part.tail for part in call.parts)
        return Few(call.form, head, tail) if min(head, tail) <= call.form.size // _PART else None

    def timed(self, at: Line, site: Site[Few]) -> None:
        """See `ResultsWatcher`."""
        weights: Counter[Sorted] = Counter()
        for use, calls in site.uses.items():
            weights[use.form] += calls * use.form.rows * use.form.size
        form = max(weights, key=lambda one: weights[one])
        head, tail = max(use.head for use in site.uses), max(use.tail for use in site.uses)
        few, last = min(head, tail), tail < head
        place = place_of_line(at)
        taken = _both_ways(form, few, last) if few <= form.size // _PART else None
        if taken is None or place is None or not taken[0]:
            return
        self.host.write(
            SortedForFew(
                place=place,
                rows=form.rows,
                size=form.size,
                few=few,
                last=last,
                descending=form.descending,
                dtype=str(form.dtype).removeprefix("torch."),
                calls=site.calls,
                sampled=self.sampled,
                seconds=site.seconds,
                every=max(site.seconds, site.every),
                whole=taken[0],
                topk=taken[1],
            )
        )


def _both_ways(form: Sorted, few: int, last: bool) -> tuple[float, float] | None:
    """Seconds of the sort and of `topk`; `last` where the end of the order is used. Of many rows a part is timed."""
    rows = max(1, min(form.rows, _MOST_BYTES // (_COPIES * 8 * form.size)))
    if private.modes_on() or rows * form.size * 8 * _COPIES > 2 * _MOST_BYTES:
        return None
    largest = form.descending != last
    with plain_torch(False):
        # Its own numbers: the program's generators must not be drawn from.
        chance = torch.Generator(device="cpu").manual_seed(0)
        given = torch.rand(rows, form.size, generator=chance, device="cpu")
        given = (given * (1 << 20)).to(form.dtype) if not form.dtype.is_floating_point else given.to(form.dtype)
        if form.stride > 1:
            # The dimension is not the last: its elements lie apart.
            given = given.t().contiguous().t()
        taken = medians(
            [
                clocked(lambda: torch.sort(given, dim=-1, descending=form.descending, stable=form.stable)),
                clocked(lambda: torch.topk(given, few, dim=-1, largest=largest)),
            ],
            _SECONDS,
        )
    scale = form.rows / rows
    return taken[0] * scale, taken[1] * scale
