"""Finds calls of a module that are given what the call before was given, and a few columns more, many times in a row.

Each sampled step's module calls are heard. Shapes that grow are cheap to see, and only of those a few elements are kept
and compared. The outermost module that is given the growing tensor by position is the one that is followed.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

from torchvet.probes.base.costs import EACH
from torchvet.probes.base.elements import is_plain
from torchvet.probes.base.kit import Host, Place, StepKind, bare_name, user_lines
from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import ModuleHooks
from torchvet.probes.internals.module_calls import ModuleCalls
from torchvet.probes.time.prefixes.columns import ROW, Call, Rows, begins_like, begins_with, cost, grown, some_of
from torchvet.probes.time.real_time import SampledTimer
from torchvet.recording.records.timing import PrefixComputedAgain

_WHAT = "calls that are given a longer and longer input"
_ROWS, _FEATURES = 64, 8
"""Elements of a column that are kept, of what a call is given and of what comes out."""
_SITES, _SPOTS = 512, 20
_CALLS = 1024
"""Calls of one line that are timed."""
_PRODUCTS = ("mm", "addmm")
_TRAINS = ("training", "manual", "backward")
_CALL = "_call_impl"
"""The function that runs in each call of a module."""


@dataclass
class _Site:
    """A module, by what it was given last."""

    module: weakref.ref[nn.Module]
    shape: tuple[int, ...] = ()
    dim: int | None = None
    lengths: list[tuple[int, int]] = field(default_factory=list)
    """Of calls in a row, each a little longer than the one before: the columns, and how many of them are new."""
    columns: torch.Tensor | None = None

    def begin(self) -> None:
        """The call under way is the first of a row."""
        self.dim, self.columns, self.lengths = None, None, []


@dataclass
class _Run:
    """A row of calls that is followed. The last one has begun as the `number`-th of all calls of modules, when
    operators had taken so many seconds."""

    site: _Site
    number: int = 0
    linear: float = 0.0
    square: float = 0.0
    operators: int = 0
    weights: int = 0
    """Of the last call: its operators, and the bytes of the weights that they read."""
    place: Place | None = None
    module: str = ""
    depth: int = 0
    calls: list[Call] = field(default_factory=list)
    compared: int = 0
    same: int = 0
    output: torch.Tensor | None = None
    """Of the module that has ended last with an output for each column."""
    before: torch.Tensor | None = None
    """The same of the call before."""


@dataclass
class _Spot:
    """All rows of one line."""

    id: int
    module: str
    dim: int
    """That of the columns."""
    rows: Rows
    """Of the module, in steps that are not sampled."""
    calls: list[Call] = field(default_factory=list)
    lengths: Counter[tuple[int, int]] = field(default_factory=Counter)
    row: int = 0
    compared: int = 0
    same: int = 0
    ticks: set[int] = field(default_factory=set)
    beside: int = 0
    """Columns of calls on the line that are of no row."""


class _Known(NamedTuple):
    """A module of rows: each call of it is timed from then on."""

    module: weakref.ref[nn.Module]
    place: Place
    spot: _Spot
    depth: int
    """How many calls of modules the line leads to, this module's included."""


class GrowingPrefixes(SampledTimer):
    """Inputs that begin with the whole input of the call before."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._sites: dict[int, _Site] = {}
        """By the module's identity."""
        self._under_way: list[tuple[int, str]] = []
        """The calls of modules that have begun and not ended, outermost first: their numbers and classes."""
        self._numbers = count(1)
        self._within = 0
        """How many of those are the followed call and calls within it."""
        self._run: _Run | None = None
        self._linear = self._square = 0.0
        """Seconds of the operators of rows."""
        self._spots: dict[Place, _Spot] = {}
        self._calls = ModuleCalls()
        self._known: dict[int, _Known] = {}
        """By the module's identity."""

    def install(self) -> None:
        """Hear the calls of modules in sampled steps, and the operators in them."""
        self.host.ledger.asides.append(ModuleHooks(before=self._starts, after=self._ended))
        self.host.ledger.listeners.append(self._operator)

    def remove(self) -> None:
        """See `Watcher`."""
        self._calls.close()
        super().remove()

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if self._run is None:
            return
        size = self._run.site.lengths[-1][0]
        square = any(isinstance(one, torch.Tensor) and one.shape.count(size) > 1 for one in (out, *args[:2]))
        if square or bare_name(func).startswith("_scaled_dot_product"):
            self._square += self.host.ledger.took
        else:
            self._linear += self.host.ledger.took
        self._run.operators += 1
        weights = args[-1] if bare_name(func) in _PRODUCTS else None
        if isinstance(weights, torch.Tensor):
            self._run.weights += weights.nbytes

    def _starts(self, module: nn.Module, args: Any) -> None:
        if not self.host.active:
            return
        self._under_way.append((next(self._numbers), type(module).__name__))
        if self._within:
            self._within += 1
        elif args and is_plain(args[0]) and args[0].ndim:
            with self.host.looking(_WHAT):
                self._within = int(self._given(module, args[0]))

    def _ended(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._under_way:
            self._under_way.pop()
        self._within = max(0, self._within - 1)
        out = output[0] if isinstance(output, tuple) and output else output
        if self._run is not None and is_plain(out):
            with self.host.looking(_WHAT):
                self._came_out(self._run, out)

    def _given(self, module: nn.Module, given: torch.Tensor) -> bool:
        """A module is called; whether its calls are followed."""
        site = self._site(module)
        if site is None:
            return False
        before, site.shape = site.shape, tuple(given.shape)
        dim = grown(before, site.shape)
        if dim is None or site.dim not in (None, dim) or self._foreign():
            self._ends(site)
            self._beside(module, site.shape)
            return False
        # The first of the row has nothing that was there before.
        site.lengths = site.lengths or [(before[dim], before[dim])]
        site.dim = dim
        site.lengths.append((site.shape[dim], site.shape[dim] - before[dim]))
        return len(site.lengths) > 2 and self._grows(site, given, dim)

    def _site(self, module: nn.Module) -> _Site | None:
        site = self._sites.get(id(module))
        if site is None or site.module() is not module:
            if len(self._sites) >= _SITES:
                self._sites = {key: one for key, one in self._sites.items() if one.module() is not None}
            if len(self._sites) >= _SITES:
                return None
            site = self._sites[id(module)] = _Site(weakref.ref(module))
        return site

    def _foreign(self) -> bool:
        """Whether this is a second pass of a checkpoint's, a trace, or a transform of `torch.func`."""
        tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
        if tracing or private.graph_task() != -1 or private.functorch_level() is not None:
            return True
        return private.modes_on() > 0 and any(mode is not self.host.ledger for mode in private.dispatch_modes())

    def _grows(self, site: _Site, given: torch.Tensor, dim: int) -> bool:
        """The shape has grown twice or more: does the input begin with the one before?"""
        run = self._run
        if run is not None and run.site is not site:
            # A part of the model that is followed is given as many columns.
            if run.site.lengths[-1][0] == given.shape[dim]:
                return False
            self._ends(run.site)
            run = None
        before, site.columns = site.columns, some_of(given, dim, _ROWS)
        if before is not None and not begins_with(before, site.columns):
            self._ends(site)
            return False
        if run is None:
            run = self._run = _Run(site)
        else:
            self._called_again(run)
        run.number, run.linear, run.square = self._under_way[-1][0], self._linear, self._square
        return True

    def _called_again(self, run: _Run) -> None:
        """The call before this one has ended, and the prefix of this one is all of it."""
        linear, square = self._linear - run.linear, self._square - run.square
        if len(run.calls) < _CALLS:
            run.calls.append(Call(run.site.lengths[-2][0], linear, square, run.operators, run.weights))
        run.operators = run.weights = 0
        alike = None
        if run.before is not None and run.output is not None:
            alike = begins_like(run.before, run.output)
        run.compared += alike is not None
        run.same += alike is True
        run.before, run.output = run.output, None
        if run.place is None:
            # The outermost of the calls that have begun since: what called it is called only once.
            names = [name for number, name in self._under_way if number > run.number]
            run.place, run.module, run.depth = _called_from(len(names)), names[0], len(names)

    def _came_out(self, run: _Run, out: torch.Tensor) -> None:
        """A module has ended within a row: a few elements for each column, if there are any."""
        shape, dim = run.site.shape, run.site.dim or 0
        if out.is_floating_point() and out.ndim > dim and (out.shape[0], out.shape[dim]) == (shape[0], shape[dim]):
            run.output = some_of(out, dim, _FEATURES)

    def _ends(self, site: _Site) -> None:
        """A row has ended; the call that is under way may be the first of another."""
        run = self._run
        if run is not None and run.site is site:
            self._run = None
            if len(site.lengths) > ROW and run.place is not None:
                self._add(run, run.place, site.module())
        site.begin()

    def _add(self, run: _Run, place: Place, module: nn.Module | None) -> None:
        spot = self._spots.get(place)
        if spot is None:
            if len(self._spots) >= _SPOTS:
                return
            spot = self._spots[place] = _Spot(len(self._spots), run.module, run.site.dim or 0, Rows())
        known = self._known.get(id(module))
        if module is not None and (known is None or known.module() is not module):
            self._follow(module, _Known(weakref.ref(module), place, spot, run.depth))
        elif known is not None and known.spot is spot:
            # Its first call did not grow, and counted as one beside it.
            spot.beside -= run.site.lengths[0][0]
        spot.calls += run.calls[: _CALLS - len(spot.calls)]
        spot.lengths.update(run.site.lengths)
        spot.row = max(spot.row, len(run.site.lengths))
        spot.compared += run.compared
        spot.same += run.same
        spot.ticks.add(self.host.tick)

    def _beside(self, module: nn.Module, shape: tuple[int, ...]) -> None:
        """A call that does not grow: on the line of rows it takes a part of the line's time."""
        known = self._known.get(id(module))
        if known is not None and known.module() is module and _called_from(known.depth) == known.place:
            known.spot.beside += shape[known.spot.dim] if known.spot.dim < len(shape) else 0

    def _follow(self, module: nn.Module, known: _Known) -> None:
        """Time its calls from now on: looking at operators changes what the others take."""
        self._known[id(module)] = known
        if self._calls.can_follow(module):
            self._calls.follow(module, partial(self._called, known.spot.rows), lambda token, output: None)

    def _called(self, rows: Rows, args: Any, kwargs: Any) -> None:
        """A module of a row is called, in any step."""
        # Of this thread: other programs do not count.
        now = time.thread_time()
        if not self.host.active or not args or not is_plain(args[0]):
            return
        with self.host.looking(_WHAT, EACH):
            if self.host.sampling or self._foreign():
                rows.end()
            else:
                rows.add(tuple(args[0].shape), now)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: with other weights the same columns are others."""
        if kind in _TRAINS:
            self._forget()

    def window_closed(self, tick: int, peak: int, cohort: Any, final: bool) -> None:
        """What comes until the next window is not heard."""
        self._forget()
        self._under_way, self._within = [], 0

    def _forget(self) -> None:
        if self._run is not None:
            self._ends(self._run.site)
        self._sites.clear()

    def restarted(self) -> None:
        """Steps are counted anew."""
        super().restarted()
        self._forget()
        self._spots.clear()
        self._known.clear()
        self._calls.close()

    def totals(self, tick: int) -> Iterator[PrefixComputedAgain]:
        """Lines that were seen to do so."""
        for place, spot in self._spots.items():
            spot.rows.end()
            # A line may have calls that are of no row as well, which take a part of its time.
            seconds, saved = cost(spot.calls, spot.lengths, spot.rows)
            columns = sum(times * length for (length, _), times in spot.lengths.items())
            yield PrefixComputedAgain(
                id=spot.id,
                place=place,
                module=spot.module,
                row=spot.row,
                calls=spot.lengths.total(),
                columns=columns + max(0, spot.beside),
                again=columns - sum(times * new for (_, new), times in spot.lengths.items()),
                steps=len(spot.ticks),
                sampled=self.sampled,
                compared=spot.compared,
                same=spot.same,
                timed=spot.rows.lengths.total(),
                seconds=seconds,
                saved=saved * columns / max(1, columns + spot.beside, columns),
            )


def _called_from(calls: int) -> Place | None:
    """The user's line that led to the last so many calls of modules."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and calls:
        calls -= frame.f_code.co_name == _CALL
        frame = frame.f_back
    return next(iter(user_lines(frame, 1)), None)
