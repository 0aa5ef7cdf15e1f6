"""Finds tensors of the differences of all pairs of rows that are only summed up, and times the ways without them after
the program has ended."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import ByStorage, Host, StepKind, Unchecked, bare_name
from torchvet.probes.base.ledger import Line, place_of_line
from torchvet.probes.internals import private
from torchvet.probes.time.pairs import ways
from torchvet.probes.time.pairs.forms import Form, Move, move, shapes_of
from torchvet.probes.time.real_time import ENDED, SampledTimer
from torchvet.recording.records.timing import Distance, PairDifferences

CHECK = "what distances of all pairs would take without their differences"
_LEAST = 1 << 14
"""Elements of a table below which it takes next to no time."""
_MOST = 1024
"""Tables of one step that are followed."""
_SITES = 4
"""Lines that are timed."""


class _Key(NamedTuple):
    """What one finding is about."""

    at: Line
    inner: Line | None
    distance: Distance


@dataclass
class _Table:
    """One tensor of differences, from where it is made to where it is summed up."""

    at: Line
    inner: Line | None
    form: Form
    autocast: bool
    forward: float = 0.0
    backward: float = 0.0
    reduced: Line | None = None
    distance: Distance | None = None
    otherwise: bool = False
    """Whether something else is computed of it as well: then it is needed."""
    twice: bool = False
    """Whether its backward pass is differentiated again."""


@dataclass
class _Site:
    """All tables that one finding is about."""

    reduced: Line | None
    autocast: bool
    twice: bool = False
    forms: Counter[Form] = field(default_factory=Counter)
    forward: float = 0.0
    backward: float = 0.0

    @property
    def seconds(self) -> float:
        """Of all their operators."""
        return self.forward + self.backward

    @property
    def usual(self) -> Form:
        """The form with most elements in all; of those with a backward pass, if there was one."""
        learned = [form for form in self.forms if any(form.learned)] if self.backward else []
        found = max(learned or self.forms, key=lambda form: self.forms[form] * form.elements)
        # A nearest row has no gradient: the graph is made, and no backward pass goes through it.
        return found if self.backward else found._replace(learned=(False, False))


class PairDifferenceTables(SampledTimer):
    """Distances of all pairs of rows, computed from a tensor of their differences."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._now: ByStorage[tuple[_Table, Form]] = ByStorage()
        """By storage: a table, and what has been done to each element to make what lies there."""
        self._tables: list[_Table] = []
        self._numbered = self._numbered_before = 0
        """How many nodes autograd had numbered at this operator, and at the one before."""
        self._nodes: dict[int, _Table] = {}
        """By the sequence number of the graph's node."""
        self._gradients: ByStorage[_Table] = ByStorage()
        self._sites: dict[_Key, _Site] = {}
        self._needed: set[Line] = set()
        """Lines whose differences are used otherwise, in some step at least."""
        self._every = 0.0
        """Seconds of all operators."""

    def install(self) -> None:
        """Hear each operator of sampled steps: any of them may use a table."""
        if not isinstance(private.sequence_nr, private.Lacking):
            self.host.ledger.listeners.append(self._operator)

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        self._numbered_before, self._numbered = self._numbered, private.sequence_nr()
        self._every += self.host.ledger.took
        if private.graph_task() != -1:
            if self._nodes:
                self._in_backward(args, out)
            return
        name = bare_name(func)
        self._followed(name, args, kwargs, out)
        # With `alpha` it is no difference.
        if name in ways.MEETING and len(args) > 1 and not kwargs and len(self._tables) < _MOST:
            self._met(name, args, out)

    def _in_backward(self, args: Any, out: Any) -> None:
        """Whose node runs? Where a table was made by `expand`, and where two gradients become one, the node tells
        nothing: then whose gradient of the table's size it is."""
        node = private.current_node()
        table = self._nodes.get(node._sequence_nr()) if node is not None else None
        table = table or next((known for one in args if (known := self._gradient_of(one)) is not None), None)
        if table is None:
            return
        table.backward += self.host.ledger.took
        table.twice |= torch.is_grad_enabled()
        if isinstance(out, torch.Tensor) and out.numel() == table.form.elements:
            self._gradients.put(out, table)

    def _gradient_of(self, one: Any) -> _Table | None:
        table = self._gradients.get(one)
        # A small gradient that is expanded shares its storage with what is no table's.
        return table if table is not None and one.numel() == table.form.elements else None

    def _met(self, name: str, args: Any, out: Any) -> None:
        """Two tensors meet: is the result one of all pairs?"""
        left, right = args[:2]
        if not (_is_plain(left) and _is_plain(right) and _is_plain(out)) or out.numel() < _LEAST:
            return
        if name == "mse_loss" and (len(args) < 3 or args[2] != 0):
            return
        shapes = shapes_of(left, right, out)
        if shapes is None or private.functorch_level() is not None:
            return
        user, inner = self.host.ledger.located(sys._getframe(3))
        at = user or inner
        if at is None:
            return
        learned = torch.is_grad_enabled()
        form = Form(*shapes, out.dtype, (learned and left.requires_grad, learned and right.requires_grad), (name,))
        cast = torch.is_autocast_enabled("cpu")
        table = _Table(at, inner if user is not None else None, form, cast, self.host.ledger.took)
        self._tables.append(table)
        self._now.put(out, (table, form))
        self._note_node(table)

    def _followed(self, name: str, args: Any, kwargs: Any, out: Any) -> None:
        """An operator: what does it make of a table that it is given?"""
        if not self._now:
            return
        for one in args:
            for given in one if isinstance(one, (tuple, list)) else (one,):
                known = self._now.get(given)
                if known is not None:
                    table, form = known
                    done = move(form, name, given, args, kwargs, out)
                    self._moved(table, done, args, out)
                    return

    def _moved(self, table: _Table, done: Move | None, args: Any, out: Any) -> None:
        if done is None:
            table.otherwise = True
            return
        table.forward += self.host.ledger.took
        self._note_node(table)
        if done.distance is None:
            self._now.put(out, (table, done.form))
            return
        table.otherwise |= table.distance not in (None, done.distance)
        table.distance, table.form = done.distance, done.form
        user, inner = self.host.ledger.located(sys._getframe(4))
        table.reduced = user or inner

    def _note_node(self, table: _Table) -> None:
        """A node is numbered before its operator runs; an operator without one leaves the number as it was."""
        if self._numbered > self._numbered_before:
            self._nodes[self._numbered - 1] = table

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: what has become of its tables?"""
        # Of a step whose end was not heard nothing is known.
        if self._tables and not self.host.ledger.exhausted:
            for table in self._tables:
                if table.otherwise or table.distance is None:
                    self._needed.add(table.at)
                else:
                    self._add(table, table.distance)
        self._tables.clear()
        self._nodes.clear()
        self._gradients.clear()
        self._now.clear()

    def _add(self, table: _Table, distance: Distance) -> None:
        key = _Key(table.at, table.inner, distance)
        site = self._sites.setdefault(key, _Site(table.reduced, table.autocast))
        site.forms[table.form] += 1
        site.forward += table.forward
        site.backward += table.backward
        site.twice |= table.twice

    def restarted(self) -> None:
        """Steps are counted anew."""
        super().restarted()
        self._sites.clear()
        self._every = 0.0

    def last_look(self, how: str, error: BaseException | None) -> None:
        """Time both ways, at those lines first that took most."""
        least = self.least()
        worth = [(key, site) for key, site in self._sites.items() if site.seconds >= least]
        sites = [(key, site) for key, site in worth if key.at not in self._needed]
        why = _why_not(how, len(sites))
        if why:
            self.host.write(Unchecked(check=CHECK, reason=why))
        for key, site in sorted(sites, key=lambda one: -one[1].seconds)[: _SITES if how in ENDED else 0]:
            self._timed(key, site)

    def _timed(self, key: _Key, site: _Site) -> None:
        usual = site.usual
        taken, place = ways.timed(usual, key.distance), place_of_line(key.at)
        if taken is None or place is None:
            return
        self.host.write(
            PairDifferences(
                place=place,
                inner=place_of_line(key.inner),
                reduced=place_of_line(site.reduced),
                distance=key.distance,
                left=usual.left,
                right=usual.right,
                rows=(usual.rows[0], usual.rows[1]),
                width=usual.width,
                dtype=str(usual.dtype).removeprefix("torch."),
                calls=sum(site.forms.values()),
                sampled=self.sampled,
                forward=site.forward,
                backward=site.backward,
                every=self._every,
                mean="mean" in usual.steps,
                scaled=any(isinstance(step, tuple) for step in usual.steps),
                autocast=site.autocast,
                twice=site.twice,
                plain=taken.plain,
                product=taken.product,
                subtracting=taken.subtracting,
            )
        )


def _why_not(how: str, sites: int) -> str:
    """Why some lines are not timed."""
    if sites and how not in ENDED:
        return f"{sites} line{'s' * (sites > 1)} computed such differences, and the program did not come to its end"
    return f"{sites} lines computed such differences, and those beyond {_SITES} were not timed" * (sites > _SITES)


def _is_plain(one: Any) -> bool:
    """Whether it is a tensor of torch's own, of whole precision, on the CPU: elsewhere a time is that of a launch."""
    plain = type(one) in (torch.Tensor, torch.nn.Parameter) and one.layout is torch.strided and not one.is_nested
    return plain and one.device.type == "cpu" and one.dtype in (torch.float32, torch.float64)
