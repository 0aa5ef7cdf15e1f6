"""Follows in which order tensors have the rows of a batch, or of a tensor that the program draws its batches from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import ByStorage, Place, names, tensors_within
from torchvet.probes.internals import private
from torchvet.probes.internals.simulated import plain_values

_LEAST, _MOST = 4, 8192
"""Rows that are followed: fewer are in the same order by chance, and more take long to read. Chosen, not measured."""
_ORDERS, _SOURCES = 64, 64
"""Orders that are kept, and tensors of the program's own that rows were drawn from."""
_EMPTY = names(
    "zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros new_ones new_empty"
)
"""What takes nothing but a shape."""
_ELSEWHERE = names("""
    gather index index_select scatter scatter_ scatter_add scatter_add_ index_put index_put_ _index_put_impl_ index_copy
    index_copy_ index_add index_add_ masked_select masked_scatter take sort topk unique_dim _unique2 repeat
    repeat_interleave flip roll tril triu
""")
"""What may give rows elsewhere."""
_ALONG = names("scatter scatter_ scatter_add scatter_add_ index_copy index_copy_ index_add index_add_ topk")
"""Of these, what leaves the rows alone along another dimension."""
_PRODUCTS = names("mm addmm")
UNKNOWN, SAME = -1, 0
"""Orders: one that is not known, and the one that a batch came in."""


class Atom(NamedTuple):
    """Rows of one tensor, in one order."""

    home: int
    """What the rows are numbered by: a loader's batch, or, below 0, a number of rows."""
    part: int
    """Which tensor of a batch, or of those with as many rows."""
    rows: int
    order: int


class Order(NamedTuple):
    """An order, and what put the rows into it."""

    rows: tuple[int, ...]
    how: str
    place: Place | None


class Orders:
    """By storage: the rows that a tensor comes of."""

    def __init__(self) -> None:
        self._atoms: ByStorage[frozenset[Atom]] = ByStorage()
        self._pieces: ByStorage[frozenset[Atom]] = ByStorage()
        """Packed sequences and what is made of these: of each token only the rows that are so long, in their order."""
        self._drawn: ByStorage[str] = ByStorage()
        """Indices that were drawn, or came of sorting."""
        self._sources: ByStorage[int] = ByStorage()
        self._numbers: dict[tuple[int, ...], int] = {}
        self.orders: dict[int, Order] = {}
        self._homes = self._parts = 0
        self._in_turn: set[int] = set()
        """Batches whose order may mean something."""

    def batch(self, tensors: list[torch.Tensor], drawn: bool) -> int:
        """A loader gave a batch, in an order that is `drawn` or may mean something: all of its tensors are in this one.
        Gives the batch's number, or 0."""
        rows = {one.shape[0] if one.dim() else 0 for one in tensors if not one.is_nested}
        size = rows.pop() if len(rows) == 1 else 0
        if not _LEAST <= size <= _MOST or not all(map(_is_plain, tensors)):
            return 0
        self._homes += 1
        if not drawn:
            self._in_turn.add(self._homes)
        for part, one in enumerate(tensors):
            self._atoms.put(one, frozenset({Atom(self._homes, part, size, SAME)}))
        return self._homes

    def sweep(self) -> None:
        """Forget what is gone."""
        for table in (self._atoms, self._pieces, self._drawn, self._sources):
            table.sweep()
        self._in_turn &= {atom.home for _, atoms in self._atoms.living() for atom in atoms}
        if len(self._numbers) > _ORDERS:
            self._atoms.clear()
            self._pieces.clear()
            self._numbers.clear()
            self.orders.clear()

    def of(self, tensor: Any) -> frozenset[Atom]:
        """The rows that a tensor comes of."""
        return self._atoms.get(tensor) or frozenset()

    def are_drawn(self, atoms: Iterable[Atom]) -> bool:
        """Whether the order that these came in means nothing."""
        return self._in_turn.isdisjoint(atom.home for atom in atoms)

    def drew(self, index: torch.Tensor, how: str) -> None:
        """An index was drawn, or sorted."""
        if _is_plain(index):
            self._drawn.put(index, how)

    def copied(self, given: Any, made: Any) -> None:
        """An index was moved, or made another kind of whole number."""
        how = self._drawn.get(given) if self._drawn else None
        if how is not None and not made.is_floating_point():
            self._drawn.put(made, how)

    def picked(self, given: torch.Tensor, index: torch.Tensor, made: torch.Tensor, place: Place | None) -> bool:
        """Rows were picked by an index. Gives whether a batch's order, or one of a program's own tensor, is another."""
        how, atoms = self._drawn.get(index) or "", self.of(given)
        numbers = _numbers(index) if how or atoms else None
        if not atoms and how and numbers is not None and not given.requires_grad and _is_plain(given):
            atoms = self._own(given, numbers)
        if not atoms:
            # What a table has for each row.
            if _is_plain(made) and (rows := self.of(index)):
                self._atoms.put(made, rows)
            return False
        # Of other indices it is not known why: matches may have been looked for.
        known = numbers if how or numbers == list(range(given.shape[0])) else None
        return self.moved(atoms, given.shape[0], known, made, Order((), how, place))

    def moved(self, atoms: Iterable[Atom], rows: int, numbers: list[int] | None, made: torch.Tensor, by: Order) -> bool:
        """Rows of these were put into another order, by their numbers, or into one that is not known."""
        found = frozenset(self._behind(atom, rows, numbers, by) for atom in atoms)
        if _is_plain(made):
            self._atoms.put(made, found)
        return any(atom.order > SAME for atom in found)

    def _own(self, given: torch.Tensor, numbers: list[int]) -> frozenset[Atom]:
        """A tensor that a program draws from is a home with all that have as many rows."""
        rows = given.shape[0]
        if rows < 2 * _LEAST or len(numbers) < 2 * _LEAST:
            return frozenset()
        part = self._sources.get(given)
        if part is None:
            if len(self._sources) >= _SOURCES:
                return frozenset()
            self._parts += 1
            part = self._parts
            self._sources.put(given, part)
        return frozenset({Atom(-rows, part, rows, SAME)})

    def _behind(self, atom: Atom, rows: int, numbers: list[int] | None, by: Order) -> Atom:
        if (
            numbers is None
            or atom.order == UNKNOWN
            or atom.rows != rows
            or max(numbers) >= rows
            or min(numbers) < -rows
        ):
            return atom._replace(order=UNKNOWN)
        # A batch's rows that are picked repeatedly are neighbors, or hard ones: chosen, not shuffled.
        if atom.home > 0 and len(set(numbers)) < rows:
            return atom._replace(order=UNKNOWN)
        before = self.orders[atom.order].rows if atom.order != SAME else range(rows)
        after = tuple(before[number] for number in numbers)
        if after == tuple(range(rows)):
            return atom._replace(order=SAME)
        order = self._numbers.setdefault(after, len(self._numbers) + 1)
        self.orders.setdefault(order, by._replace(rows=after))
        return Atom(atom.home, atom.part, len(after), order)

    def passed_on(self, name: str, args: Any, out: Any) -> None:
        """Note what an operator made of rows."""
        given = list(tensors_within(args))
        pieces = [self._pieces.get(one) or frozenset() for one in given] if self._pieces else []
        atoms: frozenset[Atom] = frozenset().union(*pieces, *map(self.of, given))
        if not atoms or name in _EMPTY:
            return
        if self._mixes(name, args):
            atoms = frozenset(atom._replace(order=UNKNOWN) for atom in atoms)
        in_pieces = name == "_pack_padded_sequence" or any(pieces)
        for made in tensors_within(out):
            if made.dim() and _is_plain(made):
                self._atoms.put(made, frozenset(atom for atom in atoms if _fits(made, atom.rows)))
                if in_pieces:
                    self._pieces.put(made, atoms)

    def _mixes(self, name: str, args: Any) -> bool:
        """Whether an operator may give rows elsewhere, or sums of them."""
        if name in _ELSEWHERE:
            return name not in _ALONG or not args[1] % max(args[0].dim(), 1)
        return name in _PRODUCTS and any(atom.rows == args[-1].shape[0] for atom in self.of(args[-1]))

    def kept(self, given: torch.Tensor, made: torch.Tensor, index: torch.Tensor | None = None) -> None:
        """Other dimensions than that of the rows were moved, by this index."""
        atoms = self.of(given)
        # Where two dimensions have as many entries as there are rows, it is not known which one was moved.
        unsure = frozenset(atom._replace(order=UNKNOWN) for atom in atoms)
        twice = any(list(given.shape).count(atom.rows) != 1 or given.shape[0] != atom.rows for atom in atoms)
        if _is_plain(made) and atoms:
            self._atoms.put(made, unsure if twice else atoms)


def _fits(made: torch.Tensor, rows: int) -> bool:
    return any(size and size % rows == 0 for size in made.shape)


def _numbers(index: torch.Tensor) -> list[int] | None:
    if index.dim() != 1 or index.is_floating_point() or index.dtype is torch.bool or not 0 < len(index) <= _MOST:
        return None
    plain = plain_values(index)
    found: list[int] | None = plain.tolist() if plain is not None else None
    return found


def _is_plain(one: torch.Tensor) -> bool:
    return one.layout is torch.strided and not one.is_nested and not private.is_functorch_wrapped(one)
