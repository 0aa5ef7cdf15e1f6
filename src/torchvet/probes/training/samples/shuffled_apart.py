"""Watches losses whose scores and targets come of the same rows in different orders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch.utils.data import (
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
)

from torchvet.probes.base.kit import (
    EVERY_STEP,
    ByStorage,
    Host,
    Place,
    Record,
    SiteWatcher,
    StepKind,
    bare_name,
    names,
    overloads,
)
from torchvet.probes.numerics.half import in_backward
from torchvet.probes.training.loaders import tensors_of
from torchvet.probes.training.samples.orders import SAME, UNKNOWN, Atom, Order, Orders
from torchvet.probes.training.sequences.sample_rows import is_drawn
from torchvet.recording.records.labels import ShuffledApart

_DRAWS = overloads(
    "randperm randperm.generator randint randint.generator randint.low randint.low_generator multinomial"
)
_SORTS = overloads("sort sort.stable")
_PICKS = overloads("index.Tensor index_select gather")
_TURNS = overloads("flip roll")
_COPIES = overloads("_to_copy clone")
_LOSSES = names("""
    nll_loss_forward nll_loss2d_forward binary_cross_entropy binary_cross_entropy_with_logits mse_loss smooth_l1_loss
    huber_loss
""")
_HEARD = names("index index_select gather flip roll sort")
_OWN_ORDER = (RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler)
"""Samplers that draw without heed of any other, or do not draw."""
_SITES, _BATCHES = 32, 8
"""Losses that are followed, and batches of one tensor whose loaders are known."""


class _Compared(NamedTuple):
    """What one loss compared: the rows of its targets, by home and parts, and how they lie to those of its scores."""

    place: Place
    targets: tuple[int, frozenset[int]]
    apart: bool
    mixed: bool
    """Scores come of rows in several orders."""
    shared: bool
    """Some targets are in an order of the scores."""
    moved: Order | None
    other: Order | None
    rows: int


class _Single(NamedTuple):
    """A loader that gives one tensor, in an order of its own, and the batch that it gave."""

    loader: int
    seed: int
    """What the pass was seeded with: two of one seed may be in one order."""
    drawn: bool
    numbers: int
    length: int
    rows: int


class ShuffledApartProbe(SiteWatcher[Place, ShuffledApart]):
    """Inputs and targets that are put into different orders."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._orders = Orders()
        self._logs: ByStorage[bool] = ByStorage()
        """Logarithms of a softmax: soft targets are multiplied with them."""
        self._singles: dict[int, _Single] = {}
        """By batch."""
        self._step: list[_Compared] = []
        self._tick = -1

    def install(self) -> None:
        """In sampled steps, hear what changes the order of rows; losses only once something did."""
        self.host.hear(_DRAWS, self._drew)
        self.host.hear(_SORTS, self._sorted)
        self.host.hear(_PICKS, self._picked)
        self.host.hear(_TURNS, self._turned)
        self.host.hear(_COPIES, self._copied)

    def remove(self) -> None:
        """Leave torch as it was."""
        listeners = self.host.ledger.listeners
        listeners[:] = [one for one in listeners if one != self._operator]
        super().remove()

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended."""
        self._close()
        self._orders.sweep()
        self._logs.sweep()

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """See `Watcher`."""
        tensors = tensors_of(batch) if self.host.sampling else []
        if not tensors or not _has_rows(iterator, tensors):
            return
        sampler: Any = iterator._index_sampler.sampler
        home = self._orders.batch(tensors, is_drawn(sampler))
        # Loaders with generators of their own may have drawn the same.
        if (
            home
            and len(tensors) == 1
            and isinstance(sampler, _OWN_ORDER)
            and getattr(sampler, "generator", None) is None
        ):
            seed, (only,) = getattr(iterator, "_base_seed", 0), tensors
            single = _Single(id(sampler), seed, is_drawn(sampler), only.numel(), len(sampler), len(only))
            self._alone(home, single)

    def _alone(self, home: int, single: _Single) -> None:
        self._singles[home] = single
        known = self._singles.values()
        if len({one.loader for one in known}) > 1 and any(one.drawn for one in known):
            self._begin()
        while len(self._singles) > _BATCHES:
            self._singles.pop(next(iter(self._singles)))

    def _begin(self) -> None:
        if self._operator not in self.host.ledger.listeners:
            self.host.ledger.listeners.append(self._operator)
            self.heed()

    def _drew(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if out.dim() == 1:
            self._orders.drew(out, "drawn")

    def _copied(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        self._orders.copied(args[0], out)

    def _sorted(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        values, index = out[0], out[1]
        # What a model gives is sorted to look at how it is distributed, or to choose of it.
        if index.dim() == 1 and not args[0].requires_grad:
            self._orders.drew(index, "sorted")
            if self._orders.of(args[0]) and self._orders.picked(args[0], index, values, self.host.line()):
                self._begin()

    def _picked(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if in_backward() or not args[0].dim():
            return
        index = _index_of_rows(bare_name(func), args)
        if index is None:
            self._orders.kept(args[0], out)
        elif self._orders.picked(args[0], index, out, self.host.line()):
            self._begin()

    def _turned(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        given, atoms = args[0], self._orders.of(args[0])
        if not atoms or in_backward():
            return
        by = args[1] if len(args) > 1 else []
        dims = args[2] if len(args) > 2 else by if bare_name(func) == "flip" else []
        along = [dim % given.dim() for dim in dims]
        if along and 0 not in along:
            return self._orders.kept(given, out)
        rows = given.shape[0]
        numbers = list(range(rows))
        how = "turned round"
        if bare_name(func) == "roll":
            by, how = (by[along.index(0)] if along else 0) % rows, "moved on"
            numbers = numbers[rows - by :] + numbers[: rows - by]
        else:
            numbers.reverse()
        # The days of a year, read in turn, are moved on to learn one from the one before.
        known = numbers if along and self._orders.are_drawn(atoms) else None
        if self._orders.moved(atoms, rows, known, out, Order((), how, self.host.line())):
            self._begin()

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if not args or in_backward():
            return
        name = bare_name(func)
        if name in _LOSSES:
            self._lost(args[0], args[1])
        elif name == "mul" and self._logs and len(args) > 1:
            first, second = (args[0], args[1]) if self._logs.get(args[0]) else (args[1], args[0])
            if self._logs.get(first) and isinstance(second, torch.Tensor) and first.shape == second.shape:
                self._lost(first, second)
        if name == "_log_softmax" or (name == "neg" and self._logs.get(args[0])):
            self._logs.put(out, True)
        if name not in _HEARD:
            self._orders.passed_on(name, args, out)

    def _lost(self, scores: torch.Tensor, target: torch.Tensor) -> None:
        if target.requires_grad and not scores.requires_grad:
            scores, target = target, scores
        if not scores.requires_grad or target.requires_grad:
            return
        given, wanted = self._orders.of(scores), self._orders.of(target)
        place = self.host.line() if given and wanted else None
        if place is None or (place not in self.sites and len(self.sites) >= _SITES):
            return
        if self.host.tick != self._tick:
            self._close()
            self._tick = self.host.tick
        self._compare_homes(place, given, wanted, not target.is_floating_point())

    def _compare_homes(self, place: Place, given: frozenset[Atom], wanted: frozenset[Atom], classes: bool) -> None:
        both = {atom.home for atom in wanted} & {atom.home for atom in given}
        for home in both:
            self._compare(place, _of_home(given, home), _of_home(wanted, home))
        if not both:
            self._loaded_apart(place, given, wanted, classes)

    def _compare(self, place: Place, given: list[Atom], wanted: list[Atom]) -> None:
        parts = frozenset(atom.part for atom in wanted)
        # Who sees the labels is given them on purpose, in whatever order.
        if parts & {atom.part for atom in given} or any(atom.order == UNKNOWN for atom in (*given, *wanted)):
            return
        seen, asked = {atom.order for atom in given}, {atom.order for atom in wanted}
        strange = sorted(asked - seen)
        moved = self._orders.orders.get(strange[-1]) if strange else None
        other = self._orders.orders.get(max(seen - asked, default=SAME))
        # Two distributions are compared by both being sorted.
        if moved is not None and other is not None and moved.how == other.how == "sorted":
            return
        targets = wanted[0].home, parts
        shared = bool(asked & seen)
        self._step.append(_Compared(place, targets, bool(strange), len(seen) > 1, shared, moved, other, wanted[0].rows))

    def _loaded_apart(self, place: Place, given: Iterable[Atom], wanted: Iterable[Atom], classes: bool) -> None:
        """Inputs came of one loader, targets of another one, and one of them shuffles for itself."""
        first = {self._singles.get(atom.home) for atom in given}
        second = {self._singles.get(atom.home) for atom in wanted}
        one, other = (found.pop() if len(found) == 1 else None for found in (first, second))
        if one is None or other is None or (one.length, one.rows) != (other.length, other.rows):
            return
        if one.loader == other.loader or one.seed == other.seed or not (one.drawn or other.drawn):
            return
        # Rows of several numbers may be samples of another set, that nothing pairs with these.
        if not classes and other.numbers != other.rows:
            return
        by = Order((), "loaders", None)
        self._step.append(_Compared(place, (0, frozenset()), True, False, False, by, by, one.rows))

    def _close(self) -> None:
        """What a step compared in one order as well, it compared on purpose in another: those are negatives."""
        paired = {one.targets for one in self._step if not one.apart}
        found = {one.place: one for one in self._step if one.apart and (one.mixed or one.targets not in paired)}
        for place in {one.place for one in self._step}:
            record = self.sites.setdefault(place, ShuffledApart(place=place))
            if place in found:
                _note(record, found[place])
            else:
                record.paired += 1
        self._step = []

    def totals(self, tick: int) -> Iterable[Record]:
        """Losses whose targets are in another order."""
        self._close()
        return [record for record in self.sites.values() if record.steps]


def _has_rows(iterator: Any, tensors: list[torch.Tensor]) -> bool:
    """Whether the first dimension of a batch's tensors is that of its samples."""
    most = getattr(getattr(iterator, "_index_sampler", None), "batch_size", None)
    sizes = {one.shape[0] for one in tensors if one.dim()}
    if not isinstance(most, int) or len(sizes) != 1:
        return False
    # A batch that a program puts together itself may have its samples in another dimension.
    is_default = getattr(iterator, "_collate_fn", None) is default_collate
    return sizes == {most} or (is_default and max(sizes) < most)


def _of_home(atoms: Iterable[Atom], home: int) -> list[Atom]:
    return [atom for atom in atoms if atom.home == home]


def _note(record: ShuffledApart, one: _Compared) -> None:
    record.steps += 1
    record.rows, record.mixed, record.shared = one.rows, one.mixed, one.shared
    record.targets = one.moved.place if one.moved is not None else None
    record.inputs = one.other.place if one.other is not None else None
    record.how = [order.how if order is not None else "" for order in (one.moved, one.other)]


def _index_of_rows(name: str, args: Any) -> torch.Tensor | None:
    """The index by which rows are picked; None where it leaves the rows alone."""
    given = args[0]
    if name == "index":
        first: torch.Tensor | None = args[1][0] if args[1] else None
        return first
    index: torch.Tensor = args[2]
    if args[1] % given.dim():
        return None
    if name == "index_select" or index.dim() == 1:
        return index
    # Each column by its own index: no order of rows.
    flat = index.flatten(1)
    same = index.stride()[1:] == (0,) * (index.dim() - 1) or flat.shape[1] == 1
    return flat[:, 0] if same else index
