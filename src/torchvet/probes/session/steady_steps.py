"""Hears of a step that passes as those before it did, and at whose end nothing is due but to count it.

A step empties the caches: a function of torchvet's own that runs in it takes several times what it takes alone. The way
by `Sheltered`, `Observer` and `Bus.tell` is a hundred functions long. Here is only what every single step needs: where
backward was called, whether the loss and the gradients are finite, and what a replay would start from. What is no plain
step of the one thread that trains is declined. It goes the long way until a boundary finds the steps steady again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.optim.optimizer import Optimizer

from torchvet.probes.base import gradients
from torchvet.probes.base.callers import whereabouts
from torchvet.probes.base.clock import SILENT, ThreadSteps
from torchvet.probes.base.hooks import tracing
from torchvet.probes.session.stepping import first_of, within_backward
from torchvet.recording.records.base import StepKind

if TYPE_CHECKING:
    from torchvet.probes.session.looks import Looks


class SteadySteps:
    """What `hooks.Taps` asks first. The methods of events are timed in the one step that stands for the others."""

    def __init__(self, looks: Looks) -> None:
        self.on = False
        """Whether the step under way is steady so far."""
        self.backward_starts: Callable[[tuple[Any, ...]], bool] = self._backward_starts
        self.backward_ended: Callable[[float], None] = self._backward_ended
        self.optimizer_starts: Callable[[Optimizer], bool] = self._optimizer_starts
        self.optimizer_ended: Callable[[Optimizer], None] = self._optimizer_ended
        self._looks = looks
        self._clock = looks.clock
        self._is_timed = False
        self._thread = 0
        self._steps = ThreadSteps()
        """This thread's, as the clock has them."""
        self._began = 0.0
        self._stepping = False
        """Whether an optimizer makes its step: backward passes within are its closure's, and make no steps."""
        self._uses: dict[int, int] = {}
        """By optimizer: steps of which the probes that pass them over have not been told yet."""

    def begin(self, kind: StepKind, timed: bool) -> None:
        """A boundary was passed, and nothing is due in the step that begins, which is `timed` or not."""
        clock = self._clock
        # Only steps that an optimizer makes, on the one thread that trains.
        self.on = kind == "training" == clock.level and gradients.is_alone()
        if not self.on:
            return
        self._stepping = False
        self._thread = threading.get_ident()
        self._steps = clock.of_thread(self._thread)
        # The methods are swapped, and not asked at each call whether they are timed.
        if timed is not self._is_timed:
            self._is_timed = timed
            for name in ("backward_starts", "backward_ended", "optimizer_starts", "optimizer_ended"):
                method = getattr(self, f"_{name}")
                setattr(self, name, self._looks.costs.timed("events", method) if timed else method)

    def end(self) -> None:
        """Something is due, or has happened that is more than a plain step."""
        self.on = False
        if self._uses:
            # Emptied first: a probe that is told may call `end` again.
            uses, self._uses = self._uses, {}
            for tell in self._looks.bus.counted.steps_passed:
                for key, steps in uses.items():
                    tell(key, steps)

    def _decline(self) -> bool:
        self.end()
        return False

    def _is_here(self) -> bool:
        """Whether this is the thread whose steps are steady, and no other looks at what its own have left."""
        return self._thread == threading.get_ident() and not self._looks.stepping.looking

    def _backward_starts(self, args: tuple[Any, ...]) -> bool:
        """`torch.autograd.backward` was called with these arguments; whether that is dealt with."""
        # As `Tensor.backward` calls it: the tensor, its gradient, whether the graph is kept, and whether one is made of
        # the pass. So many calls in a row without a step would be no gradient accumulation.
        # Any keyword, kept graph or list of tensors goes the long way.
        plain = len(args) == 4 and not (args[2] or args[3]) and self._steps.backwards < SILENT
        if not plain or not self._is_here() or tracing():
            return self._decline()
        looks = self._looks
        try:
            # Past this method, the timed wrapper or the tap.
            looks.stand(whereabouts(3))
            for hear in looks.bus.counted["backward_starts"]:
                hear(args[0], False)
        except Exception as error:
            self._failed(error)
        return True

    def _backward_ended(self, seconds: float) -> None:
        self._looks.log.add("backward", seconds)
        if self._stepping:
            # A closure's pass: the optimizer's step is the boundary, and the pass is no time of its own.
            self._began += seconds
            self._clock.busy()
        else:
            self._clock.backward_again(self._steps)
        try:
            for hear in self._looks.bus.counted["backward_ended"]:
                hear(False)
        except Exception as error:
            self._failed(error)

    def _optimizer_starts(self, optimizer: Optimizer) -> bool:
        """An optimizer's step begins; whether that is dealt with."""
        # An optimizer that steps within the pass has no boundary of its own.
        if not self._is_here() or within_backward():
            return self._decline()
        looks = self._looks
        looks.ledger.phase = "optimizer"
        try:
            for hear in looks.bus.counted["optimizer_starts"]:
                hear(optimizer)
        except Exception as error:
            self._failed(error)
        self._stepping = True
        self._began = time.perf_counter()
        return True

    def _optimizer_ended(self, optimizer: Optimizer) -> None:
        looks, key, now = self._looks, id(optimizer), time.perf_counter()
        # `StepLog.add`, written out: one call less in each step.
        looks.log.phases["optimizer"] = looks.log.phases.get("optimizer", 0.0) + now - self._began
        looks.ledger.phase, self._stepping = None, False
        counted = looks.bus.counted
        try:
            hearing = counted["optimizer_ended"]
            # Only where some probe wants to be told later how many there were.
            if counted.steps_passed:
                self._uses[key] = self._uses.get(key, 0) + 1
            for hear in hearing:
                hear(optimizer)
            looks.steady_step_ended(looks.stepping.again(self._steps, key, first_of(optimizer)), now)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.end()
        # A failure here may have lost a step, and the report says so.
        if not self._looks.missed_step(error):
            raise error
