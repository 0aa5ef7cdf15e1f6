"""Looks at the steps after a failure that no replay has explained, operator by operator, as they run."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from typing import Any

import msgspec
import torch

from torchvet.probes.base.kit import Host, graphs
from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import REGIONS, Aside
from torchvet.probes.internals.finite import is_finite, numeric
from torchvet.probes.internals.simulated import numbers
from torchvet.probes.numerics.data_origins import BatchOrigin
from torchvet.probes.replay.live_mode import Asks, BesideDynamo, LiveMode, Origin
from torchvet.probes.replay.loops import counters
from torchvet.probes.replay.naming import Names
from torchvet.probes.replay.sources import Source, Symptom, record_of, root_of
from torchvet.probes.replay.stage import Autocast, Modules
from torchvet.recording.records.nonfinite import NonFinite

MOST_STEPS = 50
"""Steps, or the passes that they are made of: a step that is skipped, or accumulates, has no end to be seen."""
MOST_SECONDS = 10.0
"""What a look may cost the program beyond its own work."""
_WHAT = "the operators of steps after one that went wrong"
_ELSEWHERE = "what made it was not among the operators that were looked at"
_COMPILED = "what made it ran in a torch.compile region"


class LiveLook:
    """One at a time: `begin()` after a failure, `advance()` wherever the program is between its passes; it ends with
    the first operator that is found, or at its bounds, and writes a record either way."""

    def __init__(self, host: Host, data: BatchOrigin) -> None:
        self._host = host
        self._data = data
        self._opening: NonFinite | None = None
        self._mode: LiveMode | None = None
        self._undo = ExitStack()
        self._thread = 0
        self._names: Names | None = None
        self._batch: Any = None
        self.optimizing = False
        """Whether an optimizer is making its step: its own arithmetic is not looked at, a closure is."""
        self.engaged = False
        """Whether `advance()` may have anything to do."""
        self._steps = 0
        self._at: set[Any] = set()
        self._tick = -1
        self._bad: set[int] = set()
        self._unseen: dict[str, None] = {}

    @property
    def wanted(self) -> bool:
        """Whether a failure waits for its explanation."""
        return self._opening is not None

    def begin(self, opening: NonFinite) -> None:
        """From here on, or from where the mode can be switched on."""
        self._opening, self.engaged = opening, True
        self._steps, self._tick = 0, -1
        self._at, self._bad, self._unseen = set(), set(), {}

    def advance(self) -> None:
        """Switch on or off what waits for it."""
        if self._opening is None:
            self._leave()
        elif self._mode is None:
            self._enter()
        elif self._mode.seconds >= MOST_SECONDS:
            self._end(f"looking ended with {MOST_SECONDS:g} s of its own")

    def batch_got(self, batch: Any) -> None:
        """Tensors that came with the batch are named by it."""
        self._batch, self._names = batch, None

    def backward_starts(self, place: Any) -> None:
        """A step is what lies between two boundaries, or two calls from one place."""
        if self._mode is None or self._opening is None:
            return
        # Boundaries may be missing where no optimizer steps: then the same call again begins the next.
        if self._host.tick != self._tick or place in self._at:
            if self._steps == MOST_STEPS:
                self._end("")
                return
            self._tick, self._at, self._names = self._host.tick, set(), None
            self._steps += 1
            self._mode.step_begins()
        self._at.add(place)

    def failed(
        self, symptom: Symptom, bad: list[torch.Tensor], tick: int, scale: float | None, spoilt: int | None
    ) -> None:
        """A loss or gradients are not finite: is it known by now what made them so? `spoilt` is the step whose
        optimizer took gradients that were not finite."""
        mode, opening = self._mode, self._opening
        # The look begins with the step after the failure.
        if mode is None or opening is None or not self._steps:  # the step that went wrong is not over yet
            return
        self._bad.add(self._steps)
        root = _root(mode, bad)
        reason, unseen = mode.root_reason(root) if root is not None else ("unknown", _ELSEWHERE)
        # Every later step fails by lost weights: none of them can show the operator that lost them.
        lost = reason == "bad-parameter" or (unseen is not None and self._parameters_lost())
        if lost:
            since = spoilt if spoilt is not None else opening.tick
            self._unseen.clear()
            self._end(f"parameters already not finite since step {since}: no later step can show it")
        # Not explained by what was seen: go on, there may be a better one.
        elif unseen is not None or root is None:
            self._unseen[unseen or _ELSEWHERE] = None
        else:
            record = NonFinite(tick=tick, symptom=symptom, found="operator", scale=scale)
            record = record_of(root, reason, mode.sources, record)
            record.place, record.loop = record.place or opening.place, counters(sys._getframe(1))
            self._write(record)

    def finish(self) -> None:
        """The program is over."""
        if self._opening is not None:
            self._end("then the program ended")
        self._leave()
        self._batch = self._names = None

    # The look itself --------------------------------------------------------------------------------------------

    def _enter(self) -> None:
        modules, autocast = Modules(self._host.known), Autocast()
        # Only with dynamo at hand: to keep it away from the mode imports it, which takes seconds.
        kind = BesideDynamo if "torch._dynamo" in sys.modules else LiveMode
        mode = kind(
            lambda tensor: self._of_step().of(tensor),
            modules.path,
            Asks(self._origin, lambda: self._host.looking(_WHAT), self._counts),
        )
        # Tried again at the next `advance`, between other passes.
        if not mode.enter_beneath():
            return
        self._mode, self._thread = mode, threading.get_ident()
        mode.autocast = autocast.now

        def follow(undo: ExitStack) -> None:
            modules.follow(undo)
            autocast.follow(undo)

        # Its hooks are modules' and autocast's: out of the way of compiled regions.
        aside = Aside(follow)
        aside.on()
        self._undo.callback(aside.off)

    def _leave(self) -> None:
        mode = self._mode
        if mode is None:
            self.engaged = False
            return
        # A mode is on in one thread only, which alone can switch it off.
        # It stays on and asks `_counts`, which says no: `advance` tries again.
        if threading.get_ident() != self._thread or not mode.can_leave:
            return
        mode.leave()
        mode.forget()
        self._undo.close()
        self._mode, self.engaged = None, False

    def _end(self, why: str) -> None:
        opening, steps = self._opening, self._steps
        assert opening is not None
        said = [opening.note] if opening.note else []
        if steps > 1:
            said.append(
                f"the {steps} passes after it were looked at as they ran, {len(self._bad) or 'none'} went wrong"
            )
        elif steps:
            said.append(f"the pass after it was looked at as it ran, and {'went wrong' if self._bad else 'was finite'}")
        else:
            said.append("no later pass was looked at")
        self._write(msgspec.structs.replace(opening, note="; ".join([*said, *self._unseen, *([why] if why else [])])))

    def _write(self, record: NonFinite) -> None:
        opening = self._opening
        assert opening is not None
        record.live, record.failed = self._steps, opening.tick
        record.replay_seconds = opening.replay_seconds + (self._mode.seconds if self._mode is not None else 0.0)
        self._data.explain(record, sys._getframe(1))
        # Before leaving: `_leave` may have to wait, and nothing must be noted meanwhile.
        self._opening = None
        self._host.write(record)
        self._leave()

    # What the mode asks -----------------------------------------------------------------------------------------

    def _counts(self) -> bool:
        host, mode = self._host, self._mode
        # Asked at every operator.
        if self._opening is None or mode is None or mode.seconds >= MOST_SECONDS:
            return False
        if not host.active or host.ledger.pausing.on:
            return False
        # An optimizer's own arithmetic runs without gradients; a closure's passes within its step do not.
        return not self.optimizing or torch.is_grad_enabled() or private.graph_task() != -1

    def _of_step(self) -> Names:
        if self._names is None:
            self._names = Names(self._host.known, {}, self._batch, {})
        return self._names

    def _origin(self, tensor: torch.Tensor, in_backward: bool) -> Origin:
        reason = self._of_step().origin(tensor)
        if reason in ("bad-parameter", "bad-buffer"):
            return Origin(reason)
        if tensor.grad_fn is not None:
            return Origin(reason, _COMPILED if "Compiled" in graphs.name_of(tensor.grad_fn) else _ELSEWHERE)
        # Gradients come from autograd's accumulation, which no mode hears.
        if in_backward or any(tensor is g for g in self._host.known.gradients()):
            return Origin(reason, _ELSEWHERE)
        if REGIONS.ran and not self._of_step().known(tensor):
            return Origin(reason, _COMPILED)
        return Origin(reason)

    def _parameters_lost(self) -> bool:
        return any(not is_finite(numbers(p)) for p in self._host.known.parameters())


def _root(mode: LiveMode, bad: list[torch.Tensor]) -> Source | None:
    taints = [t for t in (mode.taints.of(b) for b in bad if numeric(b)) if t is not None]
    return root_of(s for t in taints for s in (t.nan or t.inf))
