"""Memory that micro-batches leave behind within a step: it lives on until the step ends, and makes its peak."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchvet.probes.base.kit import EVERY_STEP, Host, Place, Record, StepKind, Watcher, frames
from torchvet.recording.records.memory import Pile

_FEWEST = 4
"""Backward calls of a step from which on they are micro-batches."""
_LEAST = 512 * 1024
"""Bytes that a step's calls leave behind, from which on names are searched for."""
_EVEN = 0.5
"""Of what the calls before left behind, what later ones leave behind at the least."""
_MOST_STEPS = 6
"""Sampled steps that are followed."""
_MOST_BIRTHS = 20_000
_SEARCHES = 2
"""Steps in which names are searched for."""


class Piles(Watcher):
    """What the backward calls of a step leave behind until it ends."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._left: list[int] = []
        """Bytes of finished micro-batches that were alive when each further backward call of this step began."""
        self._finished = 0
        """Storages that this step had made when its last backward call ended."""
        self._expected = 0
        """Backward calls of a sampled step whose memory piled up."""
        self._steps = self._searches = 0
        self._place: Place | None = None
        self._pile: Pile | None = None

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """What is still there of the calls before?"""
        if is_grad or not self.host.sampling or self._steps >= _MOST_STEPS:
            return
        births = self.host.ledger.births
        # Going through more births at each call would cost more than it tells.
        if self._finished and len(births) <= _MOST_BIRTHS:
            tick = self.host.ledger.tick
            # Of this step only: what lives on from earlier ones is growth, and others' matter.
            alive = (b for b in births[: self._finished] if b.died is None and b.tick == tick)
            self._left.append(sum(birth.nbytes for birth in alive))
            self._search()
        self._place = frames.user_place(4)

    def _search(self) -> None:
        """Who holds it? Asked twice within one step, of which the number of calls is known: what grows is compared."""
        call = len(self._left)
        # At a third and at the last call: what is held must have grown in between.
        if self._searches < _SEARCHES and self._expected and call in (self._expected // 3, self._expected - 1):
            self._searches += call == self._expected - 1
            self.host.tell("graphs_piled", self.host.step, call, "training")

    def backward_ended(self, is_grad: bool) -> None:
        """A micro-batch may be finished."""
        if self.host.sampling and not is_grad:
            self._finished = len(self.host.ledger.births)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """The step is over: did every call leave as much behind?"""
        left, self._left, self._finished = self._left, [], 0
        if len(left) < _FEWEST - 1:
            return
        self._steps += 1
        # The first third is left out: the first calls make what is made once.
        third = len(left) // 3
        early, late = left[2 * third] - left[third], left[-1] - left[2 * third]
        calls = len(left) - 1 - 2 * third
        grown = left[-1] - left[third]
        even = third and early > 0 and late >= _EVEN * early * calls / third
        if even and grown >= _LEAST and self._place is not None:
            self._expected = len(left) + 1
            if self._pile is None or grown > self._pile.bytes:
                between = len(left) - 1 - third
                self._pile = Pile(place=self._place, calls=len(left) + 1, bytes=grown, per_call=grown / between)

    def totals(self, tick: int) -> Iterable[Record]:
        """The largest pile so far."""
        if self._pile is not None:
            yield self._pile
