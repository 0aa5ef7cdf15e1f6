"""Finds loops that call a module once for each row, and times after the program has ended what one call would take."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import Host, Place, StepKind, Unchecked, tensors_within, user_lines
from torchvet.probes.base.ledger import Line, locate
from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import ModuleHooks
from torchvet.probes.time.real_time import ENDED, SampledTimer
from torchvet.probes.time.row_calls import replay
from torchvet.probes.time.row_calls.tapes import TAPED, Recorder, Tape, Unlike
from torchvet.recording.records.timing import Differentiated, RowCalls

CHECK = "what one call for all rows would take in place of many"
LEAST = 8
"""Calls of one loop from which on it is one."""
_FIRST = 3
"""The call from which on operators are noted: most modules are called once or twice."""
_SITES = 3
"""Loops that are timed."""
_MOST_SITES = 64
_CALLERS = 6


class _Key(NamedTuple):
    """Calls of one module on one line."""

    module: int
    at: Line


class _Given(NamedTuple):
    """A tensor that the module is given."""

    storage: int
    offset: int
    is_row: bool


@dataclass
class _Call:
    """A call that runs (or the step itself), with what it has called so far."""

    key: _Key | None = None
    counts: Counter[_Key] = field(default_factory=Counter)
    began: dict[_Key, tuple[float, int]] = field(default_factory=dict)
    """When the first one began, and how many nodes autograd had numbered."""
    last: dict[_Key, tuple[float, int]] = field(default_factory=dict)
    """The same of the last one."""
    graphs: set[_Key] = field(default_factory=set)
    """Those that made nodes: a frozen model that is called in turn with the one that learns makes none."""


@dataclass
class _Taping:
    """A loop that is noted now."""

    parent: _Call
    key: _Key
    recorder: Recorder = field(default_factory=Recorder)
    given: list[list[_Given]] = field(default_factory=list)
    states: set[tuple[int, ...]] = field(default_factory=set)
    """What the module had in attributes of Python's at each call."""


@dataclass
class _Site:
    """A line that calls a module in a loop."""

    module: str
    places: list[Place]
    tape: Tape | None = None
    settled: bool = False
    """Whether it is known: without a tape its rows cannot go through together."""
    kinds: set[tuple[tuple[Any, ...], ...]] = field(default_factory=set)
    """Shapes of what it is given, and whether they have a graph, up to the second one: neither rows of several lengths
    go through together, nor leaves of a tree with what was computed of them."""
    loops: list[int] = field(default_factory=list)
    """The calls of each."""
    seconds: float = 0.0
    late: float = 0.0
    """Seconds of operators in backward passes after the loop, through what it has computed."""
    backward: float = 0.0
    """Of all operators in backward passes of the same steps."""


class RowCallsProbe(SampledTimer):
    """Modules that are called row by row."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._step = _Call()
        self._running: list[_Call] = []
        self._taping: _Taping | None = None
        self._sites: dict[Line, _Site] = {}
        self._spans: list[tuple[_Site, int, int]] = []
        """The nodes of autograd's that loops of this step have made, from one number to another."""
        self._backward = 0.0

    def install(self) -> None:
        """Hear modules and operators of sampled steps."""
        if not isinstance(private.sequence_nr, private.Lacking):
            self.host.ledger.asides.append(ModuleHooks(before=self._starts, after=self._ended))
            self.host.ledger.listeners.append(self._operator)

    def _starts(self, module: torch.nn.Module, args: Any) -> None:
        """A module is called."""
        if not self.host.active:
            return
        parent = self._running[-1] if self._running else self._step
        user, inner = locate(sys._getframe(1))
        at = user or inner
        key = None if at is None else _Key(id(module), at)
        if key is not None:
            parent.counts[key] += 1
            parent.last[key] = time.perf_counter(), private.sequence_nr()
            parent.began.setdefault(key, parent.last[key])
            if parent.counts[key] >= _FIRST:
                with self.host.looking(CHECK):
                    self._again(module, parent, key, args)
        self._running.append(_Call(key))

    def _again(self, module: torch.nn.Module, parent: _Call, key: _Key, args: Any) -> None:
        """It was called before, by the same line."""
        site = self._sites.get(key.at)
        if site is None:
            if len(self._sites) >= _MOST_SITES:
                return
            site = self._sites[key.at] = _Site(type(module).__name__, user_lines(sys._getframe(3), _CALLERS))
        if len(site.kinds) <= 1:
            site.kinds.add(tuple((*one.shape, one.requires_grad) for one in tensors_within(args)))
        taping = self._taping
        if taping is None:
            if site.settled or site.tape is not None:
                return
            taping = self._taping = _Taping(parent, key)
        if taping.key == key and taping.parent is parent:
            taping.recorder.calls += 1
            taping.recorder.within = True
            taping.states.add(_state_of(module))
            taping.given.append([_Given(*_seen(one)) for one in tensors_within(args)])
            if taping.recorder.calls > TAPED:
                self._noted(site, taping)

    def _noted(self, site: _Site, taping: _Taping) -> None:
        """Enough of a loop has been noted."""
        self._taping = None
        try:
            # What it keeps of a row may be in the next one, and not all that reads a tensor is an operator.
            taping.recorder.readable |= len(taping.states) > 1
            # The call that begins now is of no iteration.
            tape = taping.recorder.tape()
            if tape.rows and _are_rows(taping.given, tape):
                site.tape = tape
        except Unlike:
            pass
        site.settled = True

    def _ended(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        """It returned."""
        if not self._running or not self.host.active:
            return
        ended = self._running.pop()
        parent = self._parent()
        if ended.key in parent.last and private.sequence_nr() > parent.last[ended.key][1]:
            parent.graphs.add(ended.key)
        taping = self._taping
        if taping is not None and taping.parent is ended:
            self._taping = None
        elif taping is not None and ended.key == taping.key and taping.parent is parent:
            taping.recorder.within = False
            taping.recorder.readable |= not all(one.requires_grad for one in tensors_within(output))
        self._close(ended)

    def _parent(self) -> _Call:
        return self._running[-1] if self._running else self._step

    def _close(self, call: _Call) -> None:
        """All that a call (or a step) has called is known."""
        for key, count in call.counts.items():
            site = self._sites.get(key.at)
            if count < LEAST or site is None:
                continue
            (began, first), (ended, last) = call.began[key], call.last[key]
            site.loops.append(count)
            site.seconds += (ended - began) * count / (count - 1)
            if key in call.graphs:
                self._spans.append((site, first, last + (last - first) // (count - 1)))

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        taping = self._taping
        if taping is not None:
            with self.host.looking(CHECK):
                self._note(taping, func, args, kwargs, out)
        if private.graph_task() != -1:
            self._in_backward()

    def _note(self, taping: _Taping, *operator: Any) -> None:
        noted = False
        try:
            taping.recorder.hear(*operator)
            noted = True
        except Unlike:
            pass
        finally:
            if not noted:
                self._taping = None
                self._sites[taping.key.at].settled = True

    def _in_backward(self) -> None:
        """Through which loop's results does it go?"""
        took = self.host.ledger.took
        self._backward += took
        node = private.current_node()
        if node is None or not (self._spans or self._step.counts):
            return
        number = node._sequence_nr()
        for site, first, last in self._spans:
            if first <= number < last:
                site.late += took
                return
        for key in self._step.graphs:
            count = self._step.counts[key]
            if count >= LEAST and key.at in self._sites and self._within(key, count, number):
                self._sites[key.at].late += took
                return

    def _within(self, key: _Key, count: int, number: int) -> bool:
        """Whether a node is of a loop of the step that is not known to have ended."""
        first, last = self._step.began[key][1], self._step.last[key][1]
        return first <= number < last + (last - first) // (count - 1)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended."""
        if not self.host.ledger.exhausted:
            self._close(self._step)
        for site in {id(site): site for site, _, _ in self._spans}.values():
            site.backward += self._backward
        self._step, self._taping, self._backward = _Call(), None, 0.0
        self._spans.clear()
        self._running.clear()

    def restarted(self) -> None:
        """Steps are counted anew."""
        super().restarted()
        for site in self._sites.values():
            site.loops.clear()
            site.seconds = site.late = site.backward = 0.0

    def last_look(self, how: str, error: BaseException | None) -> None:
        """Time both ways, of those loops first that took most."""
        least = self.least()
        sites = [s for s in self._sites.values() if s.tape is not None and s.loops and len(s.kinds) <= 1]
        worth = [site for site in sites if site.seconds >= least]
        if worth and how not in ENDED:
            loops = f"{len(worth)} loop{'s' * (len(worth) > 1)} called a module row by row"
            self.host.write(Unchecked(check=CHECK, reason=f"{loops}, and the program did not come to its end"))
            return
        for site in sorted(worth, key=lambda one: -one.seconds)[:_SITES]:
            if site.tape is not None and site.places:
                self._timed(site, site.tape)

    def _timed(self, site: _Site, tape: Tape) -> None:
        rows = sorted(site.loops)[len(site.loops) // 2]
        late = site.late / site.backward if site.backward and not tape.has_backward else 0.0
        how: Differentiated = ""
        if tape.summed_gradients or late:
            how = "summed"
        elif tape.has_backward:
            how = "each"
        try:
            taken = replay.timed(tape, rows, how == "summed")
        except Exception as error:  # whatever operators `torch.vmap` does not take, or values that they do not
            kind = type(error).__name__
            reason = f"the module {site.module} is called row by row, and its operators do not run again ({kind})"
            self.host.write(Unchecked(check=CHECK, reason=reason))
            return
        if taken is None:
            return
        self.host.write(
            RowCalls(
                place=site.places[0],
                callers=site.places[1:],
                module=site.module,
                rows=rows,
                loops=len(site.loops),
                sampled=self.sampled,
                differentiated=how,
                late=min(1.0, late),
                one=taken.one,
                together=taken.together,
                timed=taken.rows,
            )
        )


def _state_of(module: torch.nn.Module) -> tuple[int, ...]:
    """Which objects a module and its parts have as attributes, besides parameters, buffers and parts, and how long
    those are that have a length."""
    values = [value for one in module.modules() for name, value in vars(one).items() if name[0] != "_"]
    return tuple(number for value in values for number in (id(value), _length(value)))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (list, dict, set, deque)) else 0


def _seen(tensor: torch.Tensor) -> _Given:
    """Of a row there is one in the first dimension, or it has no other than its own."""
    strided = tensor.layout is torch.strided and not tensor.is_nested
    storage, offset = (tensor.untyped_storage()._cdata, int(tensor.storage_offset())) if strided else (0, 0)
    return _Given(storage, offset, strided and _is_row(tuple(tensor.shape), tensor.dtype))


def _is_row(shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Several indices in one dimension may be those of several rows."""
    return not shape or shape[0] == 1 or (len(shape) == 1 and dtype.is_floating_point)


def _are_rows(given: list[list[_Given]], tape: Tape) -> bool:
    """Whether what differs between the calls is one row, and not a part of a batch."""
    if len({len(one) for one in given}) > 1:
        return False
    varying = [call for call in zip(*given, strict=True) if len({one[:2] for one in call}) > 1]
    if varying:
        return all(one.is_row for call in varying for one in call)
    # It is given by name.
    views = [tape.given[number] for number in tape.rows]
    return all(_is_row(view.shape, view.dtype) for view in views)
