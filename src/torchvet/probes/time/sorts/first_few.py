"""Finds sorts of which only the first or the last few are used, and times `topk` in their place after the run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from torchvet.probes.base.elements import is_plain
from torchvet.probes.base.kit import After, ByStorage, Host, StepKind, Unchecked, around, bare_name, names
from torchvet.probes.base.ledger import Line, place_of_line
from torchvet.probes.internals import private
from torchvet.probes.time.real_time import ENDED, SampledTimer
from torchvet.probes.time.sorts.reach import Sorted, form_of, reach, timed
from torchvet.recording.records.timing import SortedForFew

CHECK = "sorts of which a few are used"
_LEAST = 1 << 12
"""Elements below which a sort takes next to no time."""
_PART = 4
"""Of a row at most one in so many is used, where they are few. Chosen, not measured."""
_SITES = 4
_MOST = 256
"""Sorts of one step that are followed."""
_SORTS = names("sort")


@dataclass(eq=False)
class _Call:
    """A sort of this step, and what of its order was read so far."""

    at: Line
    form: Sorted
    first: int
    last: int = -1
    old: bool = False
    """Whether a step has ended since."""


@dataclass
class _Site:
    """A line that sorts."""

    forms: Counter[Sorted] = field(default_factory=Counter)
    """By form, the calls of which a few were used."""
    head: int = 0
    tail: int = 0
    """How many are used at most, counted from the beginning and from the end of the order."""
    calls: int = 0
    seconds: float = 0.0
    every: float = 0.0
    """Seconds of all operators of the line."""
    needed: bool = False
    """Whether some call's whole order was used, or that is not known."""


class SortsForFew(SampledTimer):
    """Sorts of which only the first or the last few are used."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._known: ByStorage[_Call] = ByStorage()
        """By storage: values and indices."""
        self._calls: list[_Call] = []
        self._sites: dict[Line, _Site] = {}

    def install(self) -> None:
        """Hear each operator of sampled steps, and what reads numbers without one."""
        self.host.ledger.listeners.append(self._operator)
        for name in ("tolist", "numpy", "__dlpack__", "__reduce_ex__"):
            self.replace(torch.Tensor, name, lambda original: around(original, self._reads))

    def _reads(self, args: Any, kwargs: Any) -> tuple[Any, After] | None:
        if self._known and args and self.host.sampling:
            with self.host.looking(CHECK):
                self._read(args[0])
        return None

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if private.graph_task() != -1:
            return
        if self._sites:
            user, _ = self.host.ledger.located(sys._getframe(2))
            site = self._sites.get(user) if user is not None else None
            if site is not None:
                site.every += self.host.ledger.took
        if self._known and not _is_view(func):
            # By name: the order itself, as `sorter=`.
            for one in (*args, *kwargs.values()):
                for given in one if isinstance(one, (tuple, list)) else (one,):
                    self._read(given)
        if bare_name(func) in _SORTS:
            self._sorts(args, kwargs, out)

    def _read(self, given: Any) -> None:
        call = self._known.get(given)
        if call is not None:
            first, last = reach(call.form, given)
            call.first, call.last = min(call.first, first), max(call.last, last)

    def _sorts(self, args: Any, kwargs: Any, out: Any) -> None:
        made = out if isinstance(out, tuple) else ()
        user, _ = self.host.ledger.located(sys._getframe(3))
        if user is None or len(made) != 2 or not all(map(is_plain, made)) or made[0].numel() < _LEAST:
            return
        if "values" in kwargs or len(self._calls) >= _MOST:
            # Results that the program holds are written: who reads them is not known.
            self._site(user).needed = True
            return
        given = {**dict(zip(("dim", "descending"), args[1:], strict=False)), **kwargs}
        form = form_of(made[0], given.get("dim", -1), bool(given.get("descending")), bool(given.get("stable")))
        if form is None:
            self._site(user).needed = True
            return
        took, site = self.host.ledger.took, self._site(user)
        if not site.calls:
            site.every += took
        site.calls += 1
        site.seconds += took
        call = _Call(user, form, form.size)
        self._calls.append(call)
        for one in made:
            self._known.put(one, call)

    def _site(self, at: Line) -> _Site:
        return self._sites.setdefault(at, _Site())

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: how much of each order was used?"""
        # Of a step whose end was not heard nothing is known.
        if self.host.ledger.exhausted:
            self._forget()
            return
        alive = {id(call) for _, call in self._known.living()}
        kept: list[_Call] = []
        for call in self._calls:
            # A loop's name keeps it until the next turn binds it anew, and may be read until then.
            if id(call) in alive and not call.old:
                call.old = True
                kept.append(call)
            else:
                self._judge(call, id(call) in alive)
        self._calls = kept
        self._known.sweep()

    def _judge(self, call: _Call, lives: bool) -> None:
        size, site = call.form.size, self._site(call.at)
        head, tail = call.last + 1, size - call.first
        # What is kept for longer may be read later, and what nobody has read was read unheard.
        if lives or call.last < 0 or min(head, tail) > size // _PART:
            site.needed = True
            return
        site.forms[call.form] += 1
        site.head, site.tail = max(site.head, head), max(site.tail, tail)

    def window_closed(self, tick: int, peak: int, cohort: Any, final: bool) -> None:
        """From now on reads are not heard: of what lives on nothing is known."""
        self._forget()

    def _forget(self) -> None:
        self._calls.clear()
        self._known.clear()

    def restarted(self) -> None:
        """Steps are counted anew."""
        super().restarted()
        self._sites.clear()
        self._forget()

    def last_look(self, how: str, error: BaseException | None) -> None:
        """Time both ways, at those lines first that took most."""
        found = [(at, site) for at, site in self._sites.items() if site.forms and not site.needed]
        found.sort(key=lambda one: -one[1].seconds)
        if found and how not in ENDED:
            self.host.write(Unchecked(check=CHECK, reason="the program did not come to its end"))
            return
        for at, site in found[:_SITES]:
            self._timed(at, site)

    def _timed(self, at: Line, site: _Site) -> None:
        form = max(site.forms, key=lambda one: site.forms[one] * one.rows * one.size)
        few = min(site.head, site.tail)
        place = place_of_line(at)
        taken = timed(form, few, last=site.tail < site.head) if few <= form.size // _PART else None
        if taken is None or place is None or not taken.whole:
            return
        self.host.write(
            SortedForFew(
                place=place,
                rows=form.rows,
                size=form.size,
                few=few,
                last=site.tail < site.head,
                descending=form.descending,
                dtype=str(form.dtype).removeprefix("torch."),
                calls=site.calls,
                sampled=self.sampled,
                seconds=site.seconds,
                every=max(site.seconds, site.every),
                whole=taken.whole,
                topk=taken.few,
            )
        )


@cache
def _is_view(func: Callable[..., Any]) -> bool:
    """Whether an operator's result is its operand, seen otherwise: nothing is read."""
    schema = func._schema  # type: ignore[attr-defined]
    return any(a.alias_info is not None and not a.alias_info.is_write for a in schema.arguments)
