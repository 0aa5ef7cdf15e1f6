"""Notes the operators of a few iterations of a loop that calls a module, and tells whether its rows could go through
together: whether the iterations are alike, and none reads what an earlier one has computed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import bare_name, names, tensors_within
from torchvet.probes.internals import private

MOST = 6000
"""Operators that are noted for one loop."""
TAPED = 4
"""Iterations that are noted. Of the first the beginning is missing: its row was picked before."""
_PICKS, _LOOK_UPS = names("select slice narrow"), names("index index_select")
_SUMS = names("add add_ cat stack _foreach_add_ detach alias")
"""What may read results of earlier iterations: the order of rows does not matter to it."""
_OVERWRITES = names("copy_ zero_ fill_ index_put_ _foreach_zero_")
_CLEARS = names("zero_ fill_ _foreach_zero_")


class View(NamedTuple):
    """A tensor as an operator was given it; it is not kept."""

    storage: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    learned: bool = False


class Slot(NamedTuple):
    """Stands for a tensor among an operator's arguments: the `number`-th that operators have made, or that was there
    before."""

    made: bool
    number: int


@dataclass
class Entry:
    """An operator that ran. In its arguments tensors are slots."""

    func: Any
    args: Any
    kwargs: Any
    outs: list[int]
    backward: bool
    views: list[View] = field(default_factory=list)
    """Of its results."""
    joins: list[Slot] = field(default_factory=list)
    """Of one that adds to what earlier iterations have: what this iteration adds. It is not part of a tape."""


@dataclass
class Tape:
    """The operators of one iteration, in the order in which they ran; slots are numbered within it."""

    entries: list[Entry]
    given: list[View]
    """What was there before."""
    rows: set[int] = field(default_factory=set)
    """Which of them are another row in each iteration."""
    sums: list[Slot] = field(default_factory=list)
    """What is added up over the iterations."""
    summed_gradients: bool = False
    """Whether gradients are."""

    @property
    def has_backward(self) -> bool:
        """Whether a backward pass is part of it."""
        return any(entry.backward for entry in self.entries)


class Unlike(Exception):
    """The rows cannot go through together, or it is not known whether they can."""


class Recorder:
    """Notes what runs between the calls of a module."""

    def __init__(self) -> None:
        self.calls = 0
        self.within = False
        """Whether the module runs now."""
        self.readable = False
        """Whether the loop has results that Python reads without an operator, as `numpy()` and `tolist()` do: those
        without a graph."""
        self._entries: list[tuple[int | None, Entry]] = []
        """With the iteration that an operator is part of; None for one that needs nothing of the module's."""
        self._slots: dict[View, int] = {}
        self._made: set[int] = set()
        """Storages that were made meanwhile."""
        self._given: dict[View, int] = {}
        self._given_views: set[View] = set()
        """The same, whether or not they require gradients."""
        self._written: dict[int, tuple[int, bool]] = {}
        """By storage: the iteration that has computed what is there, and whether it was added to what others have."""
        self._count = 0
        self._reads_host = False
        self._lifted = 0
        self._aliases: dict[int, int] = {}
        """What storages that Python has made are called, by their address: that is soon another's."""

    def hear(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """An operator has run. Raises `Unlike`."""
        name = bare_name(func)
        given, made = list(tensors_within([args, kwargs])), list(tensors_within(out))
        if self._is_strange(name, args, [*given, *made]):
            raise Unlike
        if name == "lift_fresh":
            # What Python has made of numbers: at each time another tensor, if at the same address.
            self._lifted += 1
            self._aliases[_address(out)] = -self._lifted
            return
        self._renew(given, made)
        targets = _targets(func, args)
        read = given[len(targets) :] if name in _OVERWRITES else given
        marks = self._marks(read)
        if not made:
            # `item()` and the like.
            self._reads_host = self._reads_host or bool(marks) or self.within
            return
        # A view reads nothing.
        view = not targets and {*map(self._key, made)} <= {*map(self._key, read)}
        earlier = not view and self._are_earlier(marks)
        if earlier and name not in _SUMS:
            raise Unlike
        # One of a weight, or of a batch, is no result of the module's.
        given_before = view and self._made.isdisjoint(map(self._key, made))
        of = self.calls - 1 if marks or (self.within and not given_before) else None
        self._note_reading(name, marks, given, made)
        self._note(of, Entry(func, args, kwargs, [], private.graph_task() != -1), read, made, earlier)
        self._mark(name, of, targets, given, made, earlier)

    def _note_reading(self, name: str, marks: list[Any], given: list[Any], made: list[Any]) -> None:
        """Whether a result of the module's leaves the graph, so that Python may read it. Within the module masks and
        noise do so, and what autograd saves of its results."""
        if marks and not self.within and private.graph_task() == -1:
            self.readable |= name == "detach" or _leaves_the_graph(given, made)

    def _is_strange(self, name: str, args: Any, tensors: list[torch.Tensor]) -> bool:
        """Whether an operator rules it out that rows go through together, or that it is told."""
        known = len(self._entries) < MOST and private.functorch_level() is None and all(map(_is_plain, tensors))
        return not known or _trains_norm(name, args)

    def _marks(self, read: list[Any]) -> list[tuple[int, bool]]:
        """What is known of the storages that are read."""
        return [mark for one in read if (mark := self._written.get(self._key(one))) is not None]

    def _are_earlier(self, marks: list[tuple[int, bool]]) -> bool:
        """Whether something of an earlier iteration is among what is read."""
        return any(iteration < self.calls - 1 or summed for iteration, summed in marks)

    def _note(self, of: int | None, entry: Entry, read: list[Any], made: list[Any], earlier: bool) -> None:
        if earlier:
            own = [one for one in read if self._written.get(self._key(one)) == (of, False)]
            entry.joins = [self._slot(one) for one in own]
            entry.args, entry.kwargs = (), {}
        else:
            entry.args, entry.kwargs = mapped(entry.args, self._slot), mapped(entry.kwargs, self._slot)
            for one in made:
                entry.outs.append(self._count)
                entry.views.append(view := self._view(one))
                # A transposed transpose is what was given.
                if view not in self._given_views:
                    self._slots[view] = self._count
                self._count += 1
        self._entries.append((of, entry))

    def _renew(self, given: list[Any], made: list[Any]) -> None:
        """Storages that are new have the addresses of others that are gone."""
        before = set(map(_address, given))
        for address in map(_address, made):
            if address not in before:
                self._made.add(address)
                self._aliases.pop(address, None)
                self._written.pop(address, None)

    def _mark(
        self, name: str, of: int | None, targets: list[Any], given: list[Any], made: list[Any], earlier: bool
    ) -> None:
        """Note whose results storages have now."""
        before = set(map(self._key, given))
        for key in map(self._key, made):
            if key not in before and of is not None:
                self._written[key] = (of, earlier)
        for key in map(self._key, targets):
            if name in _CLEARS:
                self._written.pop(key, None)
            elif of is not None or key not in self._made:
                # What is written outside of the module counts as well: the next row may be made of it.
                self._written[key] = (self.calls - 1, earlier)

    def _key(self, tensor: torch.Tensor) -> int:
        address = _address(tensor)
        return self._aliases.get(address, address)

    def _view(self, tensor: torch.Tensor) -> View:
        shape, stride = tuple(tensor.shape), tuple(tensor.stride())
        return View(self._key(tensor), int(tensor.storage_offset()), shape, stride, tensor.dtype)

    def _slot(self, tensor: torch.Tensor) -> Slot:
        view = self._view(tensor)
        made = self._slots.get(view)
        if made is not None:
            return Slot(True, made)
        if view.storage in self._made:
            # Seen by a view that no operator has made.
            raise Unlike
        self._given_views.add(view)
        view = view._replace(learned=tensor.requires_grad)
        return Slot(False, self._given.setdefault(view, len(self._given)))

    def tape(self) -> Tape:
        """An iteration's, with what is a row. Raises `Unlike` where the iterations are not alike."""
        views = list(self._given)
        tapes = [_tape(self._entries, views, number) for number in range(1, TAPED)]
        first = tapes[0]
        for other in tapes[1:]:
            _compare(first, other)
        self._find_rows(tapes)
        return first

    def _find_rows(self, tapes: list[Tape]) -> None:
        first = tapes[0]
        for number, views in enumerate(zip(*(tape.given for tape in tapes), strict=True)):
            offsets = [view.offset for view in views]
            if len({view.storage for view in views}) > 1:
                if self._may_depend(views[0]):
                    raise Unlike
            elif len(set(offsets)) == 1:
                continue
            # A row that is chosen by the last result comes in no order.
            elif self._reads_host and not _is_even(offsets):
                raise Unlike
            first.rows.add(number)
        picks = _picks(tapes)
        if self._reads_host and not all(_is_even(numbers) for steps in picks.values() for numbers in steps):
            raise Unlike
        _take_rows(first, set(picks))

    def _may_depend(self, view: View) -> bool:
        """Whether what Python made, such as a label or a row of a list, may have in it what was read of a result."""
        return self._reads_host or (self.readable and view.shape not in ((), (1,)))


def _tape(entries: list[tuple[int | None, Entry]], views: list[View], number: int) -> Tape:
    """The operators of one iteration and those that they need, with slots of their own."""
    kept, sums, summed = _needed(entries, number)
    made: dict[int, int] = {}
    given: dict[int, int] = {}

    def own(slot: Slot) -> Slot:
        if not slot.made:
            return Slot(False, given.setdefault(slot.number, len(given)))
        if slot.number not in made:
            # Made before anything was noted for this iteration.
            raise Unlike
        return Slot(True, made[slot.number])

    tape: list[Entry] = []
    for entry in kept:
        args, kwargs = mapped(entry.args, own), mapped(entry.kwargs, own)
        for out in entry.outs:
            made[out] = len(made)
        tape.append(Entry(entry.func, args, kwargs, [made[out] for out in entry.outs], entry.backward, entry.views))
    ended = [own(slot) for slot in sums]
    return Tape(tape, [views[number] for number in given], sums=ended, summed_gradients=summed)


def _needed(entries: list[tuple[int | None, Entry]], number: int) -> tuple[list[Entry], list[Slot], bool]:
    """The operators, what is added up over the iterations, and whether gradients are."""
    needed: set[int] = set()
    kept: list[Entry] = []
    sums: list[Slot] = []
    summed = False
    for of, entry in reversed(entries):
        if of != number and (of is not None or not needed.intersection(entry.outs)):
            continue
        if entry.outs:
            kept.append(entry)
        else:
            sums += entry.joins
            summed |= entry.backward
        needed.update(slot.number for slot in (*slots_in([entry.args, entry.kwargs]), *entry.joins) if slot.made)
    return kept[::-1], sums, summed


def _compare(first: Tape, other: Tape) -> None:
    """Whether two iterations do the same."""
    alike = len(first.entries) == len(other.entries) and len(first.given) == len(other.given)
    if not alike or first.sums != other.sums:
        raise Unlike
    if not _same_shapes(first.given, other.given):
        raise Unlike
    for mine, theirs in zip(first.entries, other.entries, strict=True):
        if mine.func is not theirs.func or mine.outs != theirs.outs or not _same_shapes(mine.views, theirs.views):
            raise Unlike
        # Numbers may differ: which row it is, or its weight.
        pairs = zip(leaves([mine.args, mine.kwargs]), leaves([theirs.args, theirs.kwargs]), strict=False)
        if any(type(a) is not type(b) or (isinstance(a, Slot) and a != b) for a, b in pairs):
            raise Unlike


def _same_shapes(views: list[View], others: list[View]) -> bool:
    """Whether tensors differ in no more than where they lie."""
    pairs = zip(views, others, strict=False)
    return all(one._replace(storage=0, offset=0) == two._replace(storage=0, offset=0) for one, two in pairs)


def _picks(tapes: list[Tape]) -> dict[int, list[list[int]]]:
    """The entries that pick another row in each iteration, with the numbers by which they do so."""
    found: dict[int, list[list[int]]] = {}
    for at, alike in enumerate(zip(*(tape.entries for tape in tapes), strict=True)):
        if bare_name(alike[0].func) not in _PICKS or alike[0].args[0].made:
            continue
        numbers = [[one for one in entry.args[1:] if type(one) is int] for entry in alike]
        steps = [list(step) for step in zip(*numbers, strict=True) if len(set(step)) > 1]
        if steps:
            found[at] = steps
    return found


def _take_rows(tape: Tape, picks: set[int]) -> None:
    """Take out what picks a row of a whole batch: its result becomes a row that is given. The batch may be a data set,
    of which only the row can be made."""
    changed: dict[Slot, Slot] = {}

    def now(slot: Slot) -> Slot:
        return changed.get(slot, slot)

    kept: list[Entry] = []
    rows = {Slot(False, number) for number in tape.rows}
    for at, entry in enumerate(tape.entries):
        entry.args, entry.kwargs = mapped(entry.args, now), mapped(entry.kwargs, now)
        of_rows = not rows.isdisjoint(slots_in([entry.args, entry.kwargs]))
        looks_up = bare_name(entry.func) in _LOOK_UPS and not entry.args[0].made and entry.args[0] not in rows
        if at in picks or (looks_up and of_rows):
            new = Slot(False, len(tape.given))
            changed[Slot(True, entry.outs[0])] = new
            tape.given.append(entry.views[0])
            tape.rows.add(new.number)
            rows.add(new)
            continue
        kept.append(entry)
        if of_rows:
            rows.update(Slot(True, out) for out in entry.outs)
    tape.entries = kept
    tape.sums = [now(slot) for slot in tape.sums]
    for entry in kept:
        # Each row writes its own.
        tape.rows.update(slot.number for slot in _written_by(entry))


def _written_by(entry: Entry) -> list[Slot]:
    """What was there before and is written."""
    return [slot for slot in slots_in(entry.args[:1]) if not slot.made] if _writes(entry.func) else []


def _is_even(numbers: list[int]) -> bool:
    """Whether they grow by the same each time."""
    return len({after - before for before, after in pairwise(numbers)}) == 1


def _leaves_the_graph(given: list[torch.Tensor], made: list[torch.Tensor]) -> bool:
    """Whether an operator's results have no graph, in a forward pass."""
    with_graph = torch.is_grad_enabled() and any(one.requires_grad for one in given)
    return not with_graph or not all(one.is_floating_point() for one in made)


def _trains_norm(name: str, args: Any) -> bool:
    """Whether it normalizes by what a batch has: rows alone and together give other results."""
    return "batch_norm" in name and any(one is True for one in args[5:7])


def _is_plain(one: torch.Tensor) -> bool:
    """Whether it is a dense tensor of torch's own, on the CPU: elsewhere a time is that of a launch."""
    return (
        type(one) in (torch.Tensor, torch.nn.Parameter)
        and one.layout is torch.strided
        and not one.is_nested
        and one.device.type == "cpu"
    )


def _targets(func: Any, args: Any) -> list[torch.Tensor]:
    """What an operator writes into."""
    return list(tensors_within(args[0])) if _writes(func) and args else []


@functools.cache
def _writes(func: Any) -> bool:
    """Whether an operator writes into its first argument."""
    schema = getattr(func, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _address(tensor: torch.Tensor) -> int:
    """Of its storage."""
    return int(tensor.untyped_storage()._cdata)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Arguments with each tensor, or each slot, replaced by what `change` gives."""
    if isinstance(value, (torch.Tensor, Slot)):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)([mapped(item, change) for item in value])
    if isinstance(value, dict):
        return {name: mapped(item, change) for name, item in value.items()}
    return value


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)) and not isinstance(value, Slot):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        yield from leaves(list(value.values()))
    else:
        yield value


def slots_in(value: Any) -> Iterator[Slot]:
    return (one for one in leaves(value) if isinstance(one, Slot))
