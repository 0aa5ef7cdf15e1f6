"""Finds parts of backward passes whose gradients are cleared before their optimizer steps on them."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from torchvet.probes.base.callers import lines_of_user
from torchvet.probes.base.gradients import gradient_of, is_alone
from torchvet.probes.base.kit import (
    EVERY_STEP,
    Host,
    Optimizer,
    Place,
    Record,
    StepKind,
    bare_name,
    frames,
    graphs,
    names,
)
from torchvet.probes.base.ledger import Line, place_of_line, storage_key
from torchvet.probes.internals import private
from torchvet.probes.numerics import half
from torchvet.probes.time.lone_parts import Part, is_leaf, parts_of
from torchvet.probes.time.real_time import TimeWatcher
from torchvet.recording.records.timing import ThrownAway

_MOST_PASSES = 40
"""Passes of one line that are judged."""
_MOST_LINES, _MOST_FRAMES = 20_000, 60
_MOST_WAITING, _PATIENCE = 64, 64
"""Passes that wait for what becomes of their gradients, and boundaries that one waits."""
_WITNESSES = 3
"""Parameters of a part whose gradients are looked at: the smallest that have one."""
_SMALL = 1 << 16
"""Elements of a gradient from which on it is none of them."""
_CLEARING = names("zero_ fill_ _foreach_zero_ zeros_like empty_like detach detach_")
"""What is done to a gradient that nobody reads."""

Lines = tuple[Line, ...]
"""The user's lines that led to an operator, the outermost first."""


@dataclass
class _Pass:
    """A backward pass of a sampled step."""

    place: Place
    tick: int
    parts: list[Part]
    here: Lines
    seconds: float = 0.0
    """Of all its operators; those of a part are the part's."""
    counted: bool = False

    def __post_init__(self) -> None:
        self.numbers = {number: part for part in self.parts for number in part.numbers}
        self.leaves = {leaf: part for part in self.parts for leaf in part.leaves}


@dataclass
class _Witness:
    """A parameter, and the storage of its gradient when the last pass had ended."""

    ref: weakref.ref[torch.Tensor]
    key: int | None

    def has(self) -> bool:
        """Whether the gradient is still there, with what was added since."""
        parameter = self.ref()
        gradient = gradient_of(parameter) if parameter is not None else None
        # Another storage: the program has put something else in its place.
        return gradient is not None and storage_key(gradient) == self.key and not _is_zero(gradient)

    def renew(self) -> None:
        """A further pass has ended, which may have put a sum into another storage."""
        parameter = self.ref()
        gradient = gradient_of(parameter) if parameter is not None else None
        self.key = storage_key(gradient) if gradient is not None else None


@dataclass
class _Waiting:
    """A part of a pass whose gradients are there: what becomes of them?"""

    of: _Pass
    part: Part
    made: Place | None
    witnesses: list[_Witness]
    read: bool = False

    def has_gradients(self) -> bool:
        """Whether any is still there."""
        return any(witness.has() for witness in self.witnesses)


@dataclass
class _Line:
    """A line that calls backward."""

    passes: int = 0
    seconds: float = 0.0


@dataclass
class _Site:
    """A part of a line's passes."""

    id: int
    optimizer: str
    optimizer_place: Place | None
    judged: int = 0
    thrown: int = 0
    seconds: float = 0.0
    steps: set[int] = field(default_factory=set)


class ThrownAwayProbe(TimeWatcher):
    """Parts of backward passes that are thrown away."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._on = False
        """Whether there are several optimizers."""
        self._made: dict[int, Lines] = {}
        """By number of a node: the lines that made it."""
        self._pass: _Pass | None = None
        self._waiting: list[_Waiting] = []
        self._lines: dict[Place, _Line] = {}
        self._sites: dict[tuple[Place, Place | None, int], _Site] = {}
        self._optimizer_places: weakref.WeakKeyDictionary[Optimizer, Place | None] = weakref.WeakKeyDictionary()
        self._allowance = half.Allowance(0.1, 0.003)

    def install(self) -> None:
        """Hear each operator of sampled steps."""
        self.host.ledger.listeners.append(self._operator)

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """See `Watcher`."""
        self._optimizer_places[optimizer] = frames.user_place(3)
        self._on = len(self._optimizer_places) > 1

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if not self._on:
            return
        if private.graph_task() != -1:
            if self._pass is not None:
                self._pass_operator(self._pass)
            return
        # A node is numbered before its operator runs. The first operator that is heard then is its own.
        number = private.sequence_nr() - 1
        if number not in self._made and len(self._made) < _MOST_LINES:
            self._made[number] = lines_of_user(sys._getframe(2), _MOST_FRAMES)
        if self._waiting and bare_name(func) not in _CLEARING:
            self._look_for_reads(args)

    def _pass_operator(self, one: _Pass) -> None:
        took, node = self.host.ledger.took, private.current_node()
        one.seconds += took
        if node is None or not one.parts:
            return
        part = one.numbers.get(node._sequence_nr())
        if part is None and is_leaf(node):
            part = one.leaves.get(id(node.variable))
        if part is not None:
            part.seconds += took

    def _look_for_reads(self, args: Any) -> None:
        """Does an operator read a gradient: for a norm, a copy, an update by hand?"""
        given = [one for arg in args for one in (arg if isinstance(arg, (list, tuple)) else (arg,))]
        keys = {storage_key(one) for one in given if isinstance(one, torch.Tensor)}
        for one in self._waiting:
            # The key alone may be that of a storage that has taken the gradient's address.
            one.read |= any(witness.key in keys and witness.has() for witness in one.witnesses)

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """What has been cleared by now? Which parts of the graph lead to one optimizer's parameters alone?"""
        if is_grad or private.graph_task() != -1 or not self._on:
            return
        self._pass = None
        self._settle()
        place = frames.user_place(3)
        if place is not None and self.host.sampling and is_alone() and self._allowance.left():
            self._pass = self._begun(place, tensors if isinstance(tensors, (list, tuple)) else (tensors,))

    def _begun(self, place: Place, tensors: Iterable[torch.Tensor]) -> _Pass | None:
        """The pass that begins from these tensors, if it is to be judged."""
        # Elsewhere operators return before their work is done.
        if self._lines.setdefault(place, _Line()).passes >= _MOST_PASSES or any(
            t.device.type != "cpu" for t in tensors
        ):
            return None
        began = time.thread_time()
        parts = parts_of(graphs.roots_of(tensors), self.host.known.live_optimizers())
        self._allowance.spend(began)
        return (
            None
            if parts is None
            else _Pass(place, self.host.tick, parts, lines_of_user(sys._getframe(2), _MOST_FRAMES))
        )

    def backward_failed(self) -> None:
        """See `Watcher`."""
        self._pass = None

    def backward_ended(self, is_grad: bool) -> None:
        """Which of its parts have left gradients?"""
        if is_grad or private.graph_task() != -1:
            return
        one, self._pass = self._pass, None
        for known in self._waiting:
            for witness in known.witnesses:
                witness.renew()
        # Where the window has ended within the pass its later operators were not heard.
        if one is None or not self.host.sampling or self.host.ledger.exhausted:
            return
        line = self._lines[one.place]
        line.passes += 1
        found = [left for part in one.parts if (left := self._left(one, part)) is not None]
        if not found:
            line.seconds += one.seconds
        self._waiting = (self._waiting + found)[-_MOST_WAITING:]

    def _left(self, one: _Pass, part: Part) -> _Waiting | None:
        optimizer = part.optimizer()
        if optimizer is None or not part.seconds:
            return None
        own = [p for group in optimizer.param_groups for p in group["params"] if id(p) in part.leaves]
        having = [p for p in own if gradient_of(p) is not None and p.numel() <= _SMALL]
        having.sort(key=torch.Tensor.numel)
        witnesses = [_Witness(weakref.ref(p), storage_key(p.grad)) for p in having[:_WITNESSES]]
        # A gradient that is zero anyway would look like one that was cleared.
        witnesses = [witness for witness in witnesses if witness.has()]
        return _Waiting(one, part, self._place_of(part, one.here), witnesses) if witnesses else None

    def _place_of(self, part: Part, here: Lines) -> Place | None:
        """The line that made what enters the rest of the graph: the innermost in a function that goes on to run the
        rest, and not within the part itself."""
        for number, above in sorted(part.tops, reverse=True):
            made = self._made.get(number)
            if made:
                # What has no node above it is what the pass began from.
                after, last = self._made.get(above, here), None
                for mine, other in zip(made, after, strict=False):
                    if mine[0] is not other[0]:
                        break
                    last = mine
                    # Two calls from two lines: what they call in common are different calls.
                    if mine[1] != other[1]:
                        break
                return place_of_line(last)
        return None

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """It steps on what is there."""
        self._settle(optimizer)
        if self._pass is not None:
            # Within a pass, called by a hook of a parameter: the gradients are used at once.
            self._pass.parts = [part for part in self._pass.parts if part.optimizer() is not optimizer]

    def _settle(self, steps: Optimizer | None = None) -> None:
        """Which gradients are gone, and which does the optimizer that steps use?"""
        if not self._waiting:
            return
        with self.host.ledger.quiet():
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                optimizer = one.part.optimizer()
                if optimizer is None:
                    continue
                if one.read or (optimizer is steps and one.has_gradients()):
                    self._judge(one, optimizer, thrown=False)
                elif not one.has_gradients():
                    self._judge(one, optimizer, thrown=True)
                else:
                    self._waiting.append(one)

    def _judge(self, one: _Waiting, optimizer: Optimizer, *, thrown: bool) -> None:
        if not one.of.counted:
            one.of.counted = True
            self._lines[one.of.place].seconds += one.of.seconds
        key = one.of.place, one.made, id(optimizer)
        site = self._sites.get(key)
        if site is None:
            name, place = type(optimizer).__name__, self._optimizer_places.get(optimizer)
            site = self._sites[key] = _Site(len(self._sites), name, place)
        site.judged += 1
        if thrown:
            site.thrown += 1
            site.seconds += one.part.seconds
            site.steps.add(one.of.tick)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended. What still waits is followed further, although operators may not be heard."""
        self._on = len(self.host.known.live_optimizers()) > 1
        self._waiting = [one for one in self._waiting if tick - one.of.tick <= _PATIENCE]
        if not self.host.sampling or len(self._made) >= _MOST_LINES:
            self._made.clear()
        if not self.host.sampling:
            self.hear_in_samples(*(() if self._waiting else EVERY_STEP))

    def restarted(self) -> None:
        """Steps are counted anew."""
        self._pass = None
        self._waiting.clear()
        self._lines.clear()
        self._sites.clear()

    def totals(self, tick: int) -> Iterable[Record]:
        """Parts that were thrown away."""
        for (place, made, _), site in self._sites.items():
            if site.thrown:
                yield ThrownAway(
                    id=site.id,
                    place=place,
                    made=made,
                    optimizer=site.optimizer,
                    optimizer_place=site.optimizer_place,
                    share=site.seconds / self._lines[place].seconds,
                    judged=site.judged,
                    thrown=site.thrown,
                    steps=len(site.steps),
                )


def _is_zero(gradient: torch.Tensor) -> bool:
    with torch.no_grad():
        values = gradient.detach()
        return values.layout is torch.strided and not bool(values.any())
