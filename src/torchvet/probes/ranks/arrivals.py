"""Times how long this rank waits for the others, where several train together: all their steps take equally long.

Whoever waits for a collective waits in `Work.wait`, but for the gradients of a model in DistributedDataParallel and for
its buffers: C++ waits for these. A pass waits after its last node has run. The engine then calls what was queued, and
what was queued as the first node ran comes before what the model has queued. Nothing here communicates.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch

from torchvet.probes.base.kit import EVERY_STEP, Host, Record, StepKind, Unchecked, frames, place_in, user_lines
from torchvet.probes.internals import private
from torchvet.probes.objects.containers import tensors_in
from torchvet.probes.ranks.step_times import KeptSteps, StepTimes
from torchvet.probes.time.real_time import TimeWatcher
from torchvet.recording.records.base import Place

_TRAINS = ("training", "backward", "manual")
# Batches are nested that deep at most: a dict of lists of tensors.
_DEPTH = 3
_BUDGETED = ("windows", "censuses", "graphs")
# Compared between ranks, of which each looks at other steps.
_TRIFLE = 0.0002
"""Seconds of looks in a step from which on it took longer than it takes."""
_SENT, _RECEIVED_FROM_ANY = 12, 14
"""From the first to the last kind of `Work` that two ranks do alone: stages of a pipeline wait by design."""
_CHECK = "which rank the others wait for"


class ArrivalTimer(TimeWatcher):
    """Which rank the others wait for."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.ignored = EVERY_STEP
        self._thread = 0
        self._step: StepTimes | None = None
        """The step under way, where it is one of those that are kept."""
        self._kept = KeptSteps()
        self._armed: Any = None
        self._elsewhere = False

    def settle(self, tick: int, kind: StepKind) -> None:
        """A program joins its group before it trains, but when is its own affair."""
        # `ignored` is emptied by `heed`: it also says whether it has begun.
        if self.ignored and not self._elsewhere and _trains_with_others():
            self._begin()

    def _begin(self) -> None:
        distributed = torch.distributed
        self._thread = threading.get_ident()
        self._kept.watch(threading.get_native_id())
        # What synchronous collectives end in as well, on gloo.
        self.replace(distributed.Work, "wait", self._timed)
        for name in ("_broadcast_coalesced", "monitored_barrier"):
            if hasattr(distributed, name):
                self.replace(distributed, name, self._timed)
        self.replace(torch.nn.parallel.DistributedDataParallel, "forward", self._measured)
        self.heed()

    def remove(self) -> None:
        """Leave torch as it was."""
        self._disarm()
        self._step = None
        self._kept.unwatch()
        super().remove()

    def restarted(self) -> None:
        """Steps are counted anew, and are something else."""
        self._step = None
        self._kept.forget()

    @property
    def _is_here(self) -> bool:
        return self._step is not None and threading.get_ident() == self._thread

    # Steps --------------------------------------------------------------------------------------------------------

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step has ended. An evaluation belongs to the step that is under way."""
        if kind not in _TRAINS or threading.get_ident() != self._thread:
            return
        # A step that anything goes wrong in is dropped, not repaired.
        step, self._step = self._step, None
        # Looks are at other steps on each rank, and would pass for waiting.
        if step is not None and not self.host.sampling and self._looked() - step.looked < _TRIFLE:
            self._kept.add(step)
        # By number and not by time, so that all ranks keep the same steps.
        number = self.host.clock.main_steps + 1
        if not self._elsewhere and self._kept.wants(number):
            self._step = StepTimes(number, self._looked(), self._kept.delayed)

    def _looked(self) -> float:
        """Seconds that looks have taken which no two ranks take in the same steps."""
        seconds = self.host.costs.seconds
        return sum(seconds[kind] for kind in _BUDGETED)

    def batch_asked(self, iterator: Any, caller: Any) -> None:
        """See `Watcher`."""
        if self._step is not None and self._is_here:
            self._step.enter("data")

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """See `Watcher`."""
        if self._step is not None and self._is_here:
            self._step.leave()
            self._step.loaded += _elements(batch)

    def optimizer_starts(self, optimizer: Any) -> None:
        """See `Watcher`."""
        if self._step is not None and self._is_here:
            self._step.enter("optimizer")

    def optimizer_ended(self, optimizer: Any) -> None:
        """See `Watcher`."""
        if self._step is not None and self._is_here:
            self._step.leave()

    # Waits --------------------------------------------------------------------------------------------------------

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """`autograd.grad` exchanges no gradients, and a pass within another is none of the model's."""
        step = self._step
        if step is None or threading.get_ident() != self._thread:
            return
        # A closure or a pass within a pass is the outer one's time.
        if not is_grad and step.phase != "backward":
            self._arm(tensors)
        step.enter("backward")

    def backward_ended(self, is_grad: bool) -> None:
        """Since its last node has run, the pass has waited."""
        step = self._step
        if step is None or threading.get_ident() != self._thread:
            return
        seconds = step.leave()
        if self._armed is not None and step.phase != "backward":
            self._disarm()
            if seconds:
                step.waits_at(self._backward_line(), seconds)

    def backward_failed(self) -> None:
        """See `Watcher`."""
        self._disarm()
        self._step = None

    def _arm(self, tensors: Any) -> None:
        root: Any = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
        node = getattr(root, "grad_fn", None)
        # What is queued in a compiled backward is compiled with it.
        if node is None or _is_autograd_compiled():
            return
        if root.device.type != "cpu":
            # The host goes on while the device waits: what it sees says nothing.
            self._elsewhere, self._step = True, None
            return
        # The first node to run is the root's: from within it the engine can be given callbacks.
        self._armed = node.register_prehook(self._first_node)

    def _disarm(self) -> None:
        armed, self._armed = self._armed, None
        if armed is not None:
            armed.remove()

    def _first_node(self, gradients: Any) -> None:
        with self.host.looking(_CHECK):
            # Queued callbacks run in order: before the reducer's, which is queued later, as its last
            # bucket fills.
            private.after_backward(self._last_node)

    def _last_node(self) -> None:
        # What failed here would be the program's own backward pass that fails.
        with self.host.looking(_CHECK):
            if self._step is not None:
                self._step.wait()

    def _backward_line(self) -> Place | None:
        way = self.host.way
        if not way:
            return None
        _, code, at = next((one for one in way if frames.owner(one[1].co_filename) == frames.USER), way[0])
        # From the instruction: the frame has gone on since.
        line = next((line for start, end, line in code.co_lines() if start <= at < end), None)
        return place_in(code, line)

    def _timed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Around what returns when the other ranks have come."""

        @functools.wraps(original)
        def wait(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or not self._is_here or not self.host.active:
                return original(*args, **kwargs)
            step, waits = self._step, False
            with self.host.looking(_CHECK):
                waits = step is not None and step.wait()
            try:
                return original(*args, **kwargs)
            finally:
                # Waits within waits (a collective made of others) count once, in the outer.
                if waits and step is not None:
                    with self.host.looking(_CHECK):
                        self._has_waited(step, args[0] if args else None)

        return wait

    def _has_waited(self, step: StepTimes, work: Any) -> None:
        seconds = step.resume()
        kind = getattr(work, "_get_op_type", None)
        # `_get_op_type` is private (`private.ATTRIBUTES`): without it stages of a pipeline count as waiting.
        if kind is not None and _SENT <= kind() <= _RECEIVED_FROM_ANY:
            step.paired = True
        lines = user_lines(sys._getframe(2), 1)
        step.waits_at(lines[0] if lines else None, seconds)

    def _measured(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Around the model's forward pass: ranks that get more to work on come later."""

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling() and self._is_here and self.host.active:
                with self.host.looking(_CHECK):
                    if self._step is not None and torch.is_grad_enabled():
                        self._step.given += _elements((args[1:], kwargs))
            return original(*args, **kwargs)

        return forward

    # What is written ----------------------------------------------------------------------------------------------

    def totals(self, tick: int) -> Iterable[Record]:
        """The steps so far."""
        found = self._kept.record()
        if found is not None:
            yield found

    def unchecked(self) -> Iterable[Unchecked]:
        """Where a device waits."""
        if self._elsewhere:
            reason = "ranks wait for each other on their devices: `torchvet inspect` reads it from traces of all ranks"
            yield Unchecked(check=_CHECK, reason=reason)


def _trains_with_others() -> bool:
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def _is_autograd_compiled() -> bool:
    """Whether backward passes are compiled, and what is queued in them with them."""
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(module, "compiled_autograd_enabled", False))


def _elements(value: Any) -> int:
    return sum(tensor.numel() for tensor in tensors_in(value, _DEPTH))
