"""Hears what torch does: counts steps, keeps the ledger's phase, and tells the probes (`bus.py`) of each event."""

from __future__ import annotations

import time
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import Optimizer

from torchvet.probes.base import graphs
from torchvet.probes.base.callers import whereabouts
from torchvet.probes.base.hooks import sheltered
from torchvet.probes.base.watcher import Pass
from torchvet.probes.internals import device
from torchvet.probes.session.looks import Looks
from torchvet.probes.session.stepping import Boundary, first_of, within_backward

if TYPE_CHECKING:
    from torchvet.probes.session.session import Session

_EARLY = 8
"""Steps at first whose forward passes are all looked at: an evaluation may come before any training."""


class Observer(Looks):
    """One session's `hooks.Listener`. Exists only once torch is imported.

    Probes hear of what begins after the clock and before the step boundary that it makes, and of what ended before the
    boundary, too: a boundary's looks go by what they have seen.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.step_ended = sheltered(self._step_ended, session.missed_step, self._timed)
        """The program says that a step of its own ended (`watch.step()`)."""
        self._optimizer_began = 0.0

    def install(self) -> None:
        """Start listening."""
        graphs.forget_types()
        # First record of all: readers go by it, also where the process is killed next.
        program = self._session.program(str(torch.__version__), "cuda" if torch.cuda.is_available() else "cpu")
        simulated = self.options.simulated_gpu, self.options.simulated_gpus
        device.describe(program, self.options.memory_limit is not None, *simulated)
        self.write(program)
        self._session.described = True
        self._proofs.begin()
        self._taps.install()
        # Until it is known what makes the steps.
        self._taps.watch_modules()
        self.bus.install()
        self.sample_from_start()

    def release(self) -> None:
        """In a forked child: switch the ledger off; the taps pass everything through."""
        self.steady.on = False
        # A mode that stays on would note the child's storages into the parent's tables.
        self.ledger.leave()
        self._taps.unwatch_modules()

    def forsake(self) -> None:
        """In a forked child that is to be observed anew: take the probes out."""
        # The taps first: they lie on top of what the probes have wrapped.
        self._taps.remove()
        self.bus.remove()

    def _step_ended(self) -> None:
        if self.active:
            self._boundary(self.stepping.passed(self.clock.manual))

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """See `Listener`."""
        self.steady.end()
        self.clock.optimizer_made(id(optimizer))
        self.bus.tell("optimizer_made", optimizer)

    def optimizer_starts(self, optimizer: Optimizer, closure: bool = False) -> None:
        """See `Listener`."""
        self.stepping.optimizer_starts()
        # Before the probes, who may ask what phase it is.
        self.ledger.phase, self.ledger.closure = "optimizer", closure
        self.bus.tell("optimizer_starts", optimizer)
        # After the probes, whose time is not the optimizer's.
        self._optimizer_began = time.perf_counter()

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """See `Listener`."""
        self.log.add("optimizer", time.perf_counter() - self._optimizer_began)
        self.ledger.phase = None
        self.bus.tell("optimizer_ended", optimizer)
        self._boundary(self.stepping.optimizer_ended(id(optimizer), first_of(optimizer)))

    def ended_aside(self, optimizer: Optimizer | None, is_grad: bool = False) -> None:
        """See `Listener`."""
        if self._counts_aside():
            stepping = self.stepping
            ended = (
                stepping.backward_ended(is_grad)
                if optimizer is None
                else stepping.optimizer_ended(id(optimizer), first_of(optimizer))
            )
            stepping.count(ended)

    def _counts_aside(self) -> bool:
        """Whether what happens on this thread is not heard because another looks: its steps count all the same."""
        return self._session.active and self.stepping.heard_elsewhere()

    def backward_starts(self, tensors: Any, retain_graph: bool, create_graph: bool, is_grad: bool) -> None:
        """See `Listener`."""
        # Where it is called from: probes ask for it at the end of the pass, when the frame has gone on.
        self.stand(whereabouts(2))
        # A pass that keeps its graph is news also in steady steps.
        if retain_graph or create_graph or (self._pace.steady is None and self.bus.any("waits")):
            self.disturb()
            with self.looking("backward passes", "graphs"):
                late = graphs.within(self.graph_seconds())
                self.bus.told("graph_entered", Pass(tensors, retain_graph, create_graph, is_grad, late))
        self.bus.tell("backward_starts", tensors, is_grad)

    def backward_ended(self, seconds: float, is_grad: bool) -> None:
        """See `Listener`."""
        # A pass within a pass (a checkpoint's) takes time of that one's.
        if not within_backward():
            self.log.add("backward", seconds)
            # A closure's pass is no time of the optimizer's.
            if self.stepping.in_optimizer:
                self._optimizer_began += seconds
        if self._pace.steady is None:
            self._end_if_overdue()
            with self._session.guarded("windows"):
                self._sampling.backward_ended()
        # Before the boundary, which probes look back from.
        self.bus.tell("backward_ended", is_grad)
        self._boundary(self.stepping.backward_ended(is_grad))

    def backward_failed(self) -> None:
        """See `Listener`."""
        self.bus.tell("backward_failed")

    def batch_failed(self) -> None:
        """See `Listener`. The loader is at its end, or raised."""
        self.ledger.phase, self._here.loads = None, False
        self.bus.tell("loader_ended")

    def batch_asked(self, iterator: Any, caller: FrameType) -> None:
        """See `Listener`."""
        self.bus.tell("batch_asked", iterator, caller)
        self._boundary(self._batch_asked(iterator))
        # Storages made from here on are the batch's.
        self.ledger.phase, self._here.loads = "data", True

    def batch_aside(self, iterator: Any) -> None:
        """See `Listener`."""
        if self._counts_aside():
            self.stepping.count(self._batch_asked(iterator))

    def _batch_asked(self, iterator: Any) -> Boundary | None:
        # Private (`private.ATTRIBUTES`).
        first = getattr(iterator, "_num_yielded", 1) == 0  # also where workers that persist begin anew
        no_grad = not torch.is_grad_enabled()
        return self.stepping.passed(self.clock.batch_asked, self._taps.watching_modules, first, no_grad)

    def batch_got(self, iterator: Any, batch: Any, seconds: float) -> None:
        """See `Listener`."""
        self.ledger.phase, self._here.loads = None, False
        self.log.add("data", seconds)
        self.bus.tell("batch_got", iterator, batch)
        self._work_begins()

    def forward_starts(self, module: torch.nn.Module, depth: int) -> None:
        """See `Listener`."""
        # A loader's transforms may be modules: what makes a batch is no step. Another thread may load ahead meanwhile.
        if depth == 0 and not getattr(self._here, "loads", False):
            # A call of before may have ended by an exception, without its hook.
            self._sampling.stack.clear()
            with self._session.guarded("forward passes"):
                self.known.add_root(module)
            self._work_begins()
            self._boundary(self.stepping.passed(self.clock.forward_started, id(module), not torch.is_grad_enabled()))
        self._sampling.stack.append(module)
        self._end_if_overdue()

    def forward_aside(self, module: torch.nn.Module) -> None:
        """See `Listener`."""
        if self._counts_aside() and not getattr(self._here, "loads", False):
            self.stepping.count(
                self.stepping.passed(self.clock.forward_started, id(module), not torch.is_grad_enabled())
            )

    def forward_ended(self, module: torch.nn.Module, output: Any, depth: int) -> None:
        """See `Listener`."""
        if self._sampling.stack:
            self._sampling.stack.pop()
        if depth == 0 and (self.sampling or self.tick < _EARLY or self.bus.any("wants_modules")):
            self.bus.tell("forward_ended", module, output)

    def mode_changed(self, module: torch.nn.Module, training: bool) -> None:
        """See `Listener`."""
        self.clock.mode_changed(training)
        self.bus.tell("mode_changed", module, training)
        if not training:
            self._evaluation_begins()
