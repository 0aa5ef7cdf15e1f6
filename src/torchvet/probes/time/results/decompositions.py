"""Finds decompositions of which some results, or parts of them, are not read, and times what gives the rest alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final, Literal, NamedTuple

import torch

from torchvet.probes.base.kit import names
from torchvet.probes.base.ledger import Line, place_of_line
from torchvet.probes.internals import private
from torchvet.probes.time.real_time import clocked, medians, plain_torch
from torchvet.probes.time.results.reach import Part, part_of
from torchvet.probes.time.results.reading import Call, ResultsWatcher, Site
from torchvet.recording.records.distributions import UnreadFactors

_LEAST = 1 << 8
"""Elements below which a decomposition takes next to no time."""
_NAMES = {"_linalg_svd": "svd", "_linalg_eigh": "eigh", "linalg_eig": "eig", "linalg_qr": "qr"}
"""What programs call it, by the operator's name."""
_DIMENSIONS = {"svd": (-1, -1, -2), "eigh": (-1, -1), "eig": (-1, -1), "qr": (-1, -2)}
"""For each result the dimension of which the first ones may be used alone."""
_NAMED = frozenset(_NAMES.values())
_VALUES: Final = "values"
_REDUCED: Final = "reduced"
_A_CALL, _LONGEST = 0.1, 3.0
"""Seconds of a call up to which all matrices of a batch are timed, and those of one matrix above which none is."""
_MOST_ELEMENTS = 1 << 22
_SECONDS = 0.4


class Decomposed(NamedTuple):
    """What is decomposed, and how: `full` is with all columns, `grad` with gradients."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    full: bool
    grad: bool


class Less(NamedTuple):
    """What would have been enough."""

    form: Decomposed
    kind: Literal["values", "reduced"]


class UnreadFactorsProbe(ResultsWatcher[Decomposed, Less]):
    """Decompositions whose factors nobody reads."""

    check = "decompositions of which a part is used"
    operators = names(" ".join(_NAMES))
    # A function with a derivative of its own may read there alone what it has kept.
    in_backward: ClassVar[bool] = True

    def matters(self, user: Line, args: Any, made: Sequence[torch.Tensor]) -> bool:
        """See `ResultsWatcher`."""
        # `svdvals` computes vectors as well while modes are on: who calls it has no other name than its own.
        return args[0].numel() >= _LEAST and not _NAMED.isdisjoint(user[0].co_names)

    def given(
        self, name: str, args: Any, kwargs: Any, made: Sequence[torch.Tensor]
    ) -> tuple[Decomposed, list[Part]] | None:
        """See `ResultsWatcher`."""
        told, name = args[1:], _NAMES[name]
        parts = [part_of(one, dim) for one, dim in zip(made, _DIMENSIONS[name], strict=True)]
        known = [part for part in parts if part is not None]
        # Also where a result is empty, since it was not asked for.
        if len(known) < len(made) or kwargs:
            return None
        full = bool(told) and ((name == "svd" and told[0]) or told[0] == "complete")
        grad = args[0].requires_grad and torch.is_grad_enabled()
        return Decomposed(name, tuple(args[0].shape), args[0].dtype, full, grad), known

    def used(self, call: Call[Decomposed]) -> Less | None:
        """See `ResultsWatcher`."""
        form, heads = call.form, [part.head for part in call.parts]
        rows, columns = form.shape[-2:]
        least = min(rows, columns)
        vectors, others = (heads[::2], []) if form.name == "svd" else (heads[:1], heads[1:])
        if form.name.startswith("eig"):
            return Less(form, _VALUES) if not heads[1] else None
        fits = max(vectors + others) <= least
        # Without Q there is no derivative of R.
        if not any(vectors) and (form.name == "svd" or (fits and not form.grad)):
            return Less(form, _VALUES)
        wide = rows > columns if form.name == "qr" else rows != columns
        return Less(form, _REDUCED) if form.full and wide and fits else None

    def timed(self, at: Line, site: Site[Less]) -> None:
        """See `ResultsWatcher`."""
        weights: Counter[Decomposed] = Counter()
        for use, calls in site.uses.items():
            weights[use.form] += calls * torch.Size(use.form.shape).numel()
        form = max(weights, key=lambda one: weights[one])
        # What is enough for all.
        kind: Literal["values", "reduced"] = _REDUCED if any(use.kind == _REDUCED for use in site.uses) else _VALUES
        place, taken = place_of_line(at), _both_ways(form, kind, site.seconds / max(1, site.calls))
        if taken is None or place is None or not taken[0]:
            return
        self.host.write(
            UnreadFactors(
                place=place,
                name=form.name,
                kind=kind,
                shape=list(form.shape),
                full=form.full,
                gradients=form.grad,
                calls=site.calls,
                sampled=self.sampled,
                seconds=site.seconds,
                every=max(site.seconds, site.every),
                whole=taken[0],
                less=taken[1],
            )
        )


def _both_ways(form: Decomposed, kind: str, seconds: float) -> tuple[float, float] | None:
    """Seconds of the call as it is, and of what would be enough. Of a large batch a part is timed."""
    rows, columns = form.shape[-2:]
    batch = max(1, torch.Size(form.shape[:-2]).numel())
    some = max(1, min(batch, int(batch * _A_CALL / max(seconds, 1e-9)), _MOST_ELEMENTS // (rows * columns)))
    # Full factors may be far larger than the matrix.
    if private.modes_on() or seconds / batch > _LONGEST or max(rows, columns) ** 2 > 4 * _MOST_ELEMENTS:
        return None
    with plain_torch(form.grad):
        # Its own numbers: the program's generators must not be drawn from.
        chance = torch.Generator(device="cpu").manual_seed(0)
        given = torch.randn(some, rows, columns, generator=chance, dtype=form.dtype, device="cpu")
        if form.name == "eigh":
            given = given + given.mH
        given.requires_grad_(form.grad)
        ways = [clocked(partial(way, given)) for way in (_as_called(form), _enough(form.name, kind))]
        taken = medians(ways, _SECONDS, rounds=(1, 20))
    return taken[0] * batch / some, taken[1] * batch / some


def _as_called(form: Decomposed) -> Callable[[torch.Tensor], object]:
    if form.name == "svd":
        return partial(torch.linalg.svd, full_matrices=form.full)
    if form.name == "qr":
        return partial(torch.linalg.qr, mode="complete" if form.full else "reduced")
    way: Callable[[torch.Tensor], object] = torch.linalg.eigh if form.name == "eigh" else torch.linalg.eig
    return way


def _enough(name: str, kind: str) -> Callable[[torch.Tensor], object]:
    if name == "qr":
        return partial(torch.linalg.qr, mode="r" if kind == _VALUES else "reduced")
    if kind == _REDUCED:
        return partial(torch.linalg.svd, full_matrices=False)
    alone = {"svd": torch.linalg.svdvals, "eigh": torch.linalg.eigvalsh, "eig": torch.linalg.eigvals}
    way: Callable[[torch.Tensor], object] = alone[name]
    return way
