"""The finite-check mode over a program that goes on: nothing of its own is kept alive, changed, or heard by others."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import outward, tensors_within
from torchvet.probes.internals import private
from torchvet.probes.internals.finite import is_finite
from torchvet.probes.internals.simulated import numbers
from torchvet.probes.replay.finite_mode import Call, FiniteMode
from torchvet.probes.replay.operands import Namer
from torchvet.probes.replay.sources import PassingTaints, Source, Taint
from torchvet.recording.records.nonfinite import Reason

_COMMUNICATION = ("c10d", "_c10d_functional", "c10d_functional", "symm_mem")
"""Operators whose results are not there yet when they return: reading them would be reading half of them."""
_LARGEST = 1 << 28
"""Bytes of a tensor that is still copied: the program's memory may be nearly full."""
_PLAIN = private.disabled_dispatch


@dataclass(frozen=True)
class Origin:
    """Where a tensor comes from that was not finite when an operator first read it; `unseen` says so if that is not
    known, because the operator that made it ran where the mode does not reach."""

    reason: Reason
    unseen: str | None = None


class Asks(NamedTuple):
    """What the mode asks of whoever switched it on: `origin` of a tensor that came bad, and whether that was within
    backward; `guard` surrounds all work of the mode's own; `counts` says whether what runs now is the program's own
    forward or backward pass."""

    origin: Callable[[torch.Tensor, bool], Origin]
    guard: Callable[[], AbstractContextManager[None]]
    counts: Callable[[], bool]


class LiveMode(FiniteMode):
    """See `FiniteMode`."""

    def __init__(self, named: Namer, module: Callable[[], str | None], asks: Asks) -> None:
        super().__init__(named, module)
        self.taints = self._passing = PassingTaints()
        # The function that calls the engine: frames above it are the program's call of backward.
        self.backward_code = private.run_backward.__code__
        self.largest = _LARGEST
        self.operators = 0
        """Operators that were looked at."""
        self.seconds = 0.0
        """What the looking itself has taken."""
        self.tensor_subclasses = False
        """Whether operators on tensors with a dispatch of their own were passed by."""
        self._since = (0, 0)
        self._asks = asks

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        call = None
        # Asked anew at each operator: the look may have ended meanwhile.
        if self._asks.counts() and self._may_look(func, args, kwargs):
            # Before the operator: what it writes in place is gone afterwards.
            with self._looking():
                call = self._before(func, args, kwargs)
        try:
            result = func(*args, **kwargs)
            if call is not None:
                with self._looking():
                    self.operators += 1
                    self._after(result, call)
        # They hold the program's tensors, and the program goes on.
        finally:
            self._shells = {}
        return result

    def step_begins(self) -> None:
        """Called as its backward pass begins: what belongs to the step before the last is forgotten."""
        index, node = self._since
        # A graph may reach into the step before, not further.
        self.sources = [s for s in self.sources if s.index > index]
        self._places = {n: p for n, p in self._places.items() if n >= node}
        self._since = (self._index, private.sequence_nr())
        self._chosen = self._hidden = False
        self._described = 0

    def forget(self) -> None:
        """Release everything."""
        self._passing.clear()
        self.sources = []
        self._places = {}

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Neither the program's modes nor other ones of ours see what is computed within."""
        started = time.perf_counter()
        # The program's own modes would hear what the check computes.
        with self._asks.guard(), private.DisableTorchDispatch(), private.DisableTorchFunction():
            yield
        self.seconds += time.perf_counter() - started

    def _may_look(self, func: Any, args: Any, kwargs: Any) -> bool:
        # Higher-order operators run code of the program's.
        if not isinstance(func, private.OpOverload) or func.namespace in _COMMUNICATION or _tracing():
            return False
        # To read a value while a CUDA graph is being captured ends the capture by an error.
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
            return False
        # To look at such a tensor would run its class's own code.
        # `_PLAIN` is torch's own marker of a class without dispatch.
        if any(type(numbers(t)).__torch_dispatch__ is not _PLAIN for t in tensors_within([args, kwargs])):
            self.tensor_subclasses = True
            return False
        return True

    def _after(self, result: Any, call: Call) -> None:
        if not all(type(numbers(t)).__torch_dispatch__ is _PLAIN for t in tensors_within(result)):
            return
        super()._after(result, call)
        # Bad values that were overwritten with finite ones are no longer anybody's source.
        if any(bad for bad, _ in call.was_bad.values()):
            for out in map(numbers, tensors_within(result)):
                if is_finite(out):
                    self._passing.discard(out)

    def _external(self, tensor: torch.Tensor, value: torch.Tensor) -> Taint:
        taint = super()._external(tensor, value)
        source = self.sources[-1]
        # Its origin takes the tensor's place: the source must not keep it alive.
        source.external = self._asks.origin(self._outside(tensor), private.current_node() is not None)
        source.reason = source.external.reason
        return taint

    def _source(self, out: torch.Tensor, call: Call, inputs: list[torch.Tensor], parents: list[Source]) -> Source:
        source = super()._source(out, call, inputs, parents)
        # Its line is that of the region, and not of an operator.
        source.compiled = _within_compiled_region()
        return source

    def _again(self, func: Any) -> bool:
        # An operator of the program's own may do anything.
        return super()._again(func) and func.namespace == "aten"

    def root_reason(self, root: Source) -> tuple[Reason, str | None]:
        """Why, and of what came bad from where nothing was seen a word about that."""
        if isinstance(root.external, Origin):
            return root.external.reason, root.external.unseen
        return root.reason, None


class BesideDynamo(LiveMode):  # type: ignore[no-untyped-call]
    """The same in a program that has dynamo: it would compile the mode's own code with the program's. (Switching it
    off imports it, which takes seconds where it is not there already.)"""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return True

    # torch keeps dynamo away only from a `__torch_dispatch__` that the class itself defines.
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return super().__torch_dispatch__(func, types, args, kwargs)


def _within_compiled_region() -> bool:
    """Whether what runs is the graph that a region was compiled to."""
    files = (frame.f_code.co_filename for frame in outward(sys._getframe(2)))
    # What torch calls its generated code's files.
    return any(name.startswith("<eval_with_key>") or "torchinductor_" in name for name in files)


_TRACERS = tuple(getattr(private.ModeKey, "__members__", {}).values())


def _tracing() -> bool:
    """Whether operators are being recorded, by tensors without values, and not run."""
    return any(private.get_dispatch_mode(key) is not None for key in _TRACERS)
