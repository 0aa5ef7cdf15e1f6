"""Hears of steps in a dry run. Whatever goes by numbers, by time or by many steps stays out: there are none of them."""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import Optimizer

from torchvet.probes.base import frames
from torchvet.probes.base.unchecked import simulated_gaps
from torchvet.probes.dry.gaps import gaps, waited
from torchvet.probes.dry.sizing import Sizing
from torchvet.probes.memory.out_of_memory import OutOfMemoryWatcher
from torchvet.probes.session.observer import Observer
from torchvet.probes.session.step_log import StepsReached
from torchvet.probes.session.stepping import Boundary, first_of
from torchvet.recording.records.base import Place
from torchvet.simulate.dry import files

if TYPE_CHECKING:
    from torchvet.probes.session.session import Session


class DryHistory(OutOfMemoryWatcher):
    """The history of device memory in a dry run."""

    # A dry run has few steps, but its history must reach back to the first allocation: the peak is told by
    # replay.
    events = 2_000_000


class DryObserver(Observer):
    """The observer of a dry run: steps, the history of device memory, and errors that real numbers would raise too."""

    # In place of the bus's own list: see the module's first line.
    probes = ("dry.observer.DryHistory", "crash.device_errors.DeviceErrors", "session.sources.SourceKeeper")

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.made: dict[int, Place | None] = {}
        """Where optimizers were made, by identity."""
        self.sizing = Sizing(self)

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """See `Listener`."""
        self.clock.optimizer_made(id(optimizer))
        with self._session.guarded("optimizers"):
            self.known.add_optimizer(optimizer)
            self.made[id(optimizer)] = frames.user_place(3)

    def optimizer_starts(self, optimizer: Optimizer, closure: bool = False) -> None:
        """See `Listener`."""
        self.stepping.optimizer_starts()
        self.known.add_optimizer(optimizer)

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """See `Listener`."""
        self._boundary(self.stepping.optimizer_ended(id(optimizer), first_of(optimizer)))

    def backward_starts(self, tensors: Any, retain_graph: bool, create_graph: bool, is_grad: bool) -> None:
        """See `Listener`."""

    def backward_ended(self, seconds: float, is_grad: bool) -> None:
        """See `Listener`."""
        self.sizing.waiting.stepped()
        self._boundary(self.stepping.backward_ended(is_grad))

    def batch_asked(self, iterator: Any, caller: FrameType) -> None:
        """See `Listener`."""
        self.sizing.waiting.passed()
        no_grad = not torch.is_grad_enabled()
        self._boundary(self.stepping.passed(self.clock.batch_asked, self._taps.watching_modules, False, no_grad))

    def batch_got(self, iterator: Any, batch: Any, seconds: float) -> None:
        """See `Listener`."""

    def forward_starts(self, module: torch.nn.Module, depth: int) -> None:
        """See `Listener`."""
        if depth == 0:
            self.known.add_root(module)
            self._boundary(self.stepping.passed(self.clock.forward_started, id(module), not torch.is_grad_enabled()))

    def forward_ended(self, module: torch.nn.Module, output: Any, depth: int) -> None:
        """See `Listener`."""

    def mode_changed(self, module: torch.nn.Module, training: bool) -> None:
        """See `Listener`."""
        self.clock.mode_changed(training)

    def _boundary(self, passed: Boundary | None) -> None:
        if passed is None or not self.active:
            return
        enough = False
        with self.stepping.turn() as mine, self._session.guarded("step boundaries"):
            # Steps of trials are torchvet's, and no steps of the program.
            if mine and not self.sizing.trying:
                self.stepping.write(passed, None)
            enough = mine and self.sizing.boundary(passed.kind)
            self._session.trying = self.sizing.trying
        # Outside of the guard, which would hold the exception back.
        if enough:
            raise StepsReached(self._session.options.steps or self.clock.n)

    def _finish(self, how: str, error: BaseException | None) -> None:
        self.flush_steps()
        self.sizing.end()
        self.bus.tell("finish", how, error)
        self.bus.remove()
        self._taps.remove()
        # After `_taps.remove()`: torch is as it was, as `Watcher.last_look` promises.
        self.bus.told("last_look", how, error)
        files.clear()
        for gap in (*waited(self.sizing), *simulated_gaps(dry=True), *gaps(self.sizing), *self.bus.unchecked()):
            self.write(gap)
