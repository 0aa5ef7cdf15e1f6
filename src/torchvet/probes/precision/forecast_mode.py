"""Follows which tensors fp16 autocast would make half, and measures them: a dispatch mode for a few sampled steps.

The program computes in float32 (or bfloat16) as ever. Beside it runs a table of the storages that would be half under
CUDA's policy: results of matrix products and convolutions, and what follows from them by type promotion. A gradient is
half where the operator that it belongs to computed in half, or read half: autograd gives gradients the dtype of what
they are gradients of.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from torchvet.probes.base.kit import tensors_within
from torchvet.probes.base.ledger import locate, storage_key
from torchvet.probes.internals import private
from torchvet.probes.internals.modes import OwnMode
from torchvet.probes.numerics.magnitudes import OVERFLOWS, largest, measurable
from torchvet.probes.precision.autocast_policy import FILLS, SHARES, Policy, policy_of
from torchvet.probes.precision.forecast_sites import GradientTally, SiteTally, Tallies


@dataclass(frozen=True)
class _Kind:
    """What is known of an operator: `views` share the storage of what they are given and write nothing, `makes` only
    takes a dtype over: what is in its result (uninitialised memory, say) is nothing computed."""

    name: str
    policy: Policy
    views: bool
    writes: bool
    makes: bool = False


@dataclass
class _Forward:
    """What a node of the graph was made by: its site, whether it computed in half, whether it read half."""

    tally: SiteTally
    half: bool
    read_half: bool


class ForecastMode(OwnMode):  # type: ignore[no-untyped-call]
    """The dispatch mode. `module`, `tick` and `phase` are set from outside; what it finds is in `tallies`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tallies = Tallies()
        self.tick = 0
        self.module: Callable[[], str | None] = lambda: None
        self.inside = False
        """Whether a module's forward is running: what it computes belongs to the model."""
        self.optimizing = False
        self.fused = 0
        """Depth of attention calls, which CUDA computes in one kernel with float32 inside."""
        self.off = 0
        """Depth of regions that a module switches autocast off for."""
        self.own: set[str] = set()
        self.operators = 0
        self.half_parameters: set[int] = set()
        """Storages of leaves that a half operator read: their gradients come back from half."""
        self.wanted: Callable[[], bool] = lambda: True
        self.guard: Callable[[], AbstractContextManager[None]] = nullcontext
        self.seconds = 0.0
        self.scale = 1.0
        """The loss scale in force; it is taken out of gradients."""
        self._half: dict[int, float] = {}
        self._flowing: set[int] = set()
        """Storages of gradients, the first of which is made before the backward pass (`ones_like`)."""
        self._refs: dict[int, Any] = {}
        self._nodes: dict[int, _Forward] = {}
        self._kinds: dict[Any, _Kind] = {}
        self._pending: tuple[int, GradientTally, torch.Tensor] | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        # Optimizers compute in float32 under autocast as well.
        if not self.optimizing and self.wanted():
            began = time.perf_counter()
            with self.guard():
                self._note(func, args, kwargs or {}, out)
            self.seconds += time.perf_counter() - began
        return out

    def fused_result(self, result: Any) -> None:
        """An attention call has ended: its result is half, whatever it is made of here."""
        if isinstance(result, torch.Tensor) and measurable(result) and self.inside:
            self._mark(result, largest(result))

    def of_half(self, parameter: torch.Tensor) -> bool:
        """Whether an operator read a parameter in half."""
        return storage_key(parameter) in self.half_parameters

    def parameter(self, name: str, gradient: torch.Tensor) -> None:
        """Measure a parameter's gradient after a backward pass."""
        if measurable(gradient):
            self.tallies.parameter(name).add(gradient, self.tick, self.scale)

    def widened(self, tensor: torch.Tensor) -> None:
        """The program asked for float32: from here on the values are used as such."""
        key = storage_key(tensor)
        if key is not None:
            # Only the mark: the storage is followed on, since its key may be used again.
            self._half.pop(key, None)

    def step_ended(self) -> None:
        """The graph of the step is gone."""
        self.flush()
        self._nodes.clear()
        self._flowing.clear()

    def forget(self) -> None:
        """No storage is being followed any more."""
        self.step_ended()
        self._half.clear()
        self._refs.clear()

    def flush(self) -> None:
        """Count the last gradient of a node that ended."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending[1].add(pending[2], self.tick, self.scale)

    def _note(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        kind = self._kinds.get(func)
        if kind is None:
            kind = self._kinds[func] = _kind_of(func)
        # A view is in the dtype of what it shows, by the same key.
        if kind.views:
            return
        results = [t for t in tensors_within(out) if measurable(t)]
        if not results:
            return
        self.operators += 1
        node = private.current_node()
        # Recomputation under checkpointing runs within backward too, with gradients enabled.
        operands = [t for t in tensors_within([args, kwargs]) if measurable(t)]
        # With gradients on within a backward it is checkpointing's forward pass, which runs as one.
        if node is not None and not torch.is_grad_enabled():
            if self._flows(operands, results):
                self._gradient(node, results)
        else:
            self._forward(kind, operands, results)

    def _forward(self, kind: _Kind, operands: list[torch.Tensor], results: list[torch.Tensor]) -> None:
        # Computing in half already, the program cannot show what float32 would have overflowed to.
        self.own.update(str(t.dtype).removeprefix("torch.") for t in results if t.dtype != torch.float32)
        reads = [k for k in map(storage_key, operands) if k in self._half]
        half = self._is_half(kind, operands, results, bool(reads))
        # The first gradient of a backward pass: all others come from it.
        if kind.name == "ones_like":
            self._flow(results[0])
        # Uninitialised memory may hold any number.
        if half and kind.makes:
            for result in results:
                self._mark(result, 0.0)
        elif half or reads:
            self._noted(kind, half, bool(reads), operands, results)
        if not half:
            self.tallies.float32 += 1
            for result in results:
                # The storage may have been half before: an in-place operator in float32, or an
                # address used again.
                self._half.pop(storage_key(result) or 0, None)

    def _noted(
        self, kind: _Kind, half: bool, reads: bool, operands: list[torch.Tensor], results: list[torch.Tensor]
    ) -> None:
        """Measure an operator that computes in half, and note one that computes in half or reads some for its node."""
        tally = self._site(kind, results[0])
        if half:
            self.tallies.half += 1
            self._measure(kind, tally, operands, results)
        # The node of the graph has its number already: the last that was given out.
        number = private.sequence_nr() - 1
        self._nodes.setdefault(number, _Forward(tally, half, reads))

    def _is_half(self, kind: _Kind, operands: list[torch.Tensor], results: list[torch.Tensor], reads: bool) -> bool:
        """Whether autocast would leave the result in half."""
        if kind.policy == "half":
            if self.off:
                self.tallies.off += 1
                return False
            # Outside every module: only what belongs to the model. A matrix product of plain data may be anything.
            return not self.fused and (self.inside or reads or any(t.requires_grad for t in operands))
        # In a region that is switched off nothing is cast: operands decide.
        if kind.policy == "float32" and not self.off:
            return False
        # In place the tensor keeps its dtype, whatever is read.
        if kind.writes:
            return storage_key(results[0]) in self._half
        if kind.policy == "first":
            return bool(operands) and storage_key(operands[0]) in self._half
        return reads and self._promotes_to_half(operands)

    def _promotes_to_half(self, operands: list[torch.Tensor]) -> bool:
        """Type promotion: tensors without dimensions count only among themselves."""
        # torch's promotion: a scalar tensor in float32 does not widen half tensors with dimensions.
        shaped = [t for t in operands if t.dim()] or operands
        return all(storage_key(t) in self._half for t in shaped)

    def _measure(
        self, kind: _Kind, tally: SiteTally, operands: list[torch.Tensor], results: list[torch.Tensor]
    ) -> None:
        # What was too large already is not this operator's doing.
        before = max((self._half.get(storage_key(t) or 0, 0.0) for t in operands), default=0.0)
        if kind.policy == "half":
            for operand in operands:
                owner = operand if operand._base is None else operand._base
                # Also through views, such as a transposed weight.
                if owner.is_leaf and owner.requires_grad:
                    self.half_parameters.add(storage_key(operand) or 0)
                if storage_key(operand) not in self._half:
                    size = largest(operand)
                    tally.cast(size)
                    before = max(before, size)
        # Batch norm's statistics stay float32.
        for result in results[:1] if kind.policy == "first" else results:
            size = largest(result)
            # Only the first operator of a chain that is too large is to blame.
            tally.add(size, self.tick, begins=size >= OVERFLOWS > before)
            self._mark(result, size)

    def _flows(self, operands: list[torch.Tensor], results: list[torch.Tensor]) -> bool:
        """Whether a gradient went into these results: what a formula of backward computes besides is not scaled."""
        # Until the first gradient has been seen, all counts: there is nothing to go by.
        if self._flowing and not any(storage_key(t) in self._flowing for t in operands):
            return False
        for result in results:
            self._flow(result)
        return True

    def _flow(self, tensor: torch.Tensor) -> None:
        key = storage_key(tensor)
        if key is not None:
            self._flowing.add(key)
            self._follow(tensor, key)

    def _gradient(self, node: Any, results: list[torch.Tensor]) -> None:
        number = node._sequence_nr()
        made = self._nodes.get(number)
        if made is None:
            return
        # Another node runs: the one before is finished.
        if self._pending is not None and self._pending[0] != number:
            self.flush()
        tally = self.tallies.gradient(made.tally)
        if made.half:
            for result in results:
                tally.add(result, self.tick, self.scale)
        elif made.read_half:
            # Computed in float32, then cast: only what leaves the node is half.
            # Overwritten by the node's later results: the last one is what leaves it.
            self._pending = (number, tally, results[0])

    def _site(self, kind: _Kind, result: torch.Tensor) -> SiteTally:
        user, inner = locate(sys._getframe(1))
        tally = self.tallies.site(kind.name, self.module(), user, inner)
        tally.record.policy = "half" if kind.policy == "half" else "follows"
        tally.record.fills = kind.name in FILLS
        tally.record.shape = tuple(result.shape)
        return tally

    def _mark(self, tensor: torch.Tensor, size: float) -> None:
        key = storage_key(tensor)
        if key is None:
            return
        self._half[key] = max(size, self._half.get(key, 0.0))
        self._follow(tensor, key)

    def _follow(self, tensor: torch.Tensor, key: int) -> None:
        if key not in self._refs:
            # The mode is held weakly, too: a storage may outlive it.
            self._refs[key] = weakref.ref(tensor.untyped_storage(), partial(_forget, weakref.ref(self), key))


def _forget(mode: weakref.ref[ForecastMode], key: int, _: Any) -> None:
    """A storage has died: its key may be used again."""
    alive = mode()
    if alive is not None:
        alive._half.pop(key, None)
        alive._flowing.discard(key)
        alive._refs.pop(key, None)


def _kind_of(func: Any) -> _Kind:
    """What an operator's schema says."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return _Kind(str(func), "follows", False, False)
    name = schema.name.partition("::")[2]
    aliases = [r.alias_info for r in schema.returns]
    writes = bool(aliases) and all(a is not None and a.is_write for a in aliases)
    views = name in SHARES or (bool(aliases) and all(a is not None for a in aliases) and not writes)
    makes = name.endswith("_like") or name.startswith("new_")
    return _Kind(name, policy_of(name, schema.overload_name), views, writes, makes)
