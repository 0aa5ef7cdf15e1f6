"""Watches what outlives a step: running statistics, buffers, optimizer state and averaged weights that are not finite.

A step that a scaler skips changes no weight, and yet its forward pass has written to the running statistics.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

import torch
from torch.optim.optimizer import Optimizer
from torch.optim.swa_utils import AveragedModel

from torchvet.probes.base import frames
from torchvet.probes.base.kit import ByStorage, Host, SiteWatcher, around, outward, overloads, tap
from torchvet.probes.internals import private
from torchvet.probes.internals.finite import readable, which_not
from torchvet.probes.numerics import half
from torchvet.recording.records.base import Place, Record, StepKind
from torchvet.recording.records.numeric import Poisoned

_NORMS = overloads(
    "native_batch_norm _native_batch_norm_legit cudnn_batch_norm _batch_norm_with_update miopen_batch_norm"
)
_MOVING = overloads("lerp_.Scalar mul_.Tensor copy_ _foreach_lerp_.Scalar _foreach_mul_.Scalar _foreach_copy_")
# Parameters of a large model; an average has one copy for each.
_MOST_COPIES = 4096
_NAMED = 8
_APART = 8
"""The part of the steps so far, an eighth, that passes between looks: each takes as long as a small step."""
What = Literal["statistics", "buffer", "optimizer state", "copy"]


@dataclass
class _Kept:
    """A tensor that lasts, with its name and its owner."""

    tensor: torch.Tensor
    what: What
    name: str
    owner: str


@dataclass
class _Written:
    """Where a storage is written to in sampled steps."""

    dtype: torch.dtype
    place: Place | None
    call: Place | None
    ticks: set[int]


class Poison(SiteWatcher[tuple[What, str], Poisoned]):
    """Buffers, optimizer state and copies of the weights that are not finite."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._clean: ByStorage[int] = ByStorage()
        """The last tick at whose boundary a storage was looked at and was finite."""
        self._written: ByStorage[_Written] = ByStorage()
        self._averaged: list[weakref.ref[torch.nn.Module]] = []
        self._skipped: int | None = None
        self._stepped: set[int] = set()
        self.ignored = frozenset(["optimizer_starts"])
        self._step_place: Place | None = None
        self._allowance = half.Allowance(0.03, 0.003)
        self._next = self._last = 0

    def install(self) -> None:
        """See scalers step, averaged models made, and in sampled steps what writes to tensors that last."""
        self.replace(torch.amp.GradScaler, "step", lambda original: around(original, self._scaler_begins))
        self.replace(AveragedModel, "__init__", tap(self.host, "averaged models", after=self._averages))
        self.host.hear(_NORMS, self._normalised)
        self.host.hear(_MOVING, self._moved)

    def _scaler_begins(self, args: Any, kwargs: Any) -> Any:
        if not self.host.active:
            return None
        optimizer = args[1] if len(args) > 1 else kwargs.get("optimizer")
        self.heed()
        # Unless the optimizer is fused, a scaler that skips a step does not call it: its hooks stay silent.
        # If its hooks speak within this call, the step was made.
        self._stepped.discard(id(optimizer))

        def after(_: Any, error: BaseException | None) -> None:
            if error is None and id(optimizer) not in self._stepped and isinstance(optimizer, Optimizer):
                # A skipped step: what its forward pass left behind is seen at the next boundary, or at the end.
                # At once, so that the statistics are blamed on this step and not on one after it.
                with self.host.looking("steps that a scaler skipped"):
                    self._skipped = self.host.step
                    self._step_place = frames.user_place()
                    self._look(self.host.tick)

        return args, after

    def _averages(self, _: None, module: Any, *__: Any, **___: Any) -> None:
        self._averaged.append(weakref.ref(module))

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """Its step was not skipped."""
        self._stepped.add(id(optimizer))

    def _normalised(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        # `running_mean` and `running_var` of all batch norms' operators.
        for tensor in args[3:5]:
            if isinstance(tensor, torch.Tensor):
                self._note(tensor)

    def _moved(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        # An optimizer's own state is looked at with the optimizer.
        # What backward writes are gradients.
        if self.host.ledger.phase != "optimizer" and not half.in_backward():
            for tensor in args[0] if isinstance(args[0], (list, tuple)) else args[:1]:
                self._note(tensor)

    def _note(self, tensor: torch.Tensor) -> None:
        if not readable(tensor):
            return
        known = self._written.get(tensor)
        if known is not None:
            known.ticks.add(self.host.tick)
        elif len(self._written) < _MOST_COPIES:
            call = _outermost_call(sys._getframe(1))
            self._written.put(tensor, _Written(tensor.dtype, self.host.line(), call, {self.host.tick}))

    def settle(self, tick: int, kind: StepKind) -> None:
        """Look as often as is cheap, at first at every step: what is lost is mostly lost soon."""
        if tick < self._last:  # ticks began anew
            self._next = 0
        self._last = tick
        if tick >= self._next and self._allowance.left():
            self._next = tick + max(1, tick // _APART)
            began = time.thread_time()
            self._look(tick)
            self._allowance.spend(began)

    def totals(self, tick: int) -> Iterable[Record]:
        """What is not finite, with a last look."""
        self._look(tick)
        return super().totals(tick)

    def _look(self, tick: int) -> None:
        self._written.sweep()
        kept = [k for k in self._all() if readable(k.tensor)]
        bad = which_not([k.tensor for k in kept])
        if not bad:
            self._recovered(kept, tick)
        spoilt = {id(kept[i].tensor) for i in bad}
        fresh = [kept[i] for i in bad if self._was_clean(kept[i])]
        # Where parameters are lost as well, what they make of buffers is no fault of its own.
        if fresh and not which_not([p for p in self.host.known.parameters() if readable(p)]):
            self._report(fresh, kept, tick)
        for one in kept:
            if id(one.tensor) not in spoilt:
                self._clean.put(one.tensor, tick)

    def _was_clean(self, one: _Kept) -> bool:
        """Whether a tensor is poisoned and was not: a mask of infinities, or a minimum that starts at one, is none."""
        if self._clean.get(one.tensor) is None:
            return False
        # Statistics and states have no use for an infinity either.
        return one.what != "buffer" or bool(one.tensor.isnan().any())

    def _recovered(self, kept: list[_Kept], tick: int) -> None:
        for key, record in self.sites.items():
            # Only what was looked at can be said to have recovered.
            if record.recovered is None and any(k.what == key[0] and k.owner == key[1] for k in kept):
                record.recovered = tick

    def _report(self, fresh: list[_Kept], kept: list[_Kept], tick: int) -> None:
        groups: dict[tuple[What, str], list[_Kept]] = {}
        for one in fresh:
            groups.setdefault((one.what, one.owner), []).append(one)
        for key, found in groups.items():
            # Told once for each owner and kind: everything after it follows from it.
            if key in self.sites:
                continue
            since = min(self._clean.get(k.tensor) or 0 for k in found)
            names, of = [k.name for k in found][:_NAMED], sum((k.what, k.owner) == key for k in kept)
            record = Poisoned(tick=tick, clean=since, what=key[0], names=names, count=len(found), of=of, owner=key[1])
            record.nans = sum(int(k.tensor.isnan().sum()) for k in found)
            record.infinities = sum(int(k.tensor.isinf().sum()) for k in found)
            # The skipped step lies between the last look at which all was finite and this one.
            if self._skipped is not None and since < self._skipped <= tick + 1:
                record.skipped, record.step_place = self._skipped, self._step_place
            written = self._written.get(found[0].tensor)
            if written is not None:
                record.place, record.call = written.place, written.call
            self.sites[key] = record
            self.host.write(record)

    def _all(self) -> Iterator[_Kept]:
        """Everything that lasts, each storage once, without parameters."""
        # Parameters are looked at with the loss and the gradients.
        seen = {_key(p) for p in self.host.known.parameters()}
        averaged = [m for m in (ref() for ref in self._averaged) if m is not None]
        parts = (self._buffers(averaged), self._copies_in(averaged), self._states(), self._copies())
        for part in parts:
            for one in part:
                key = _key(one.tensor)
                if key not in seen:
                    seen.add(key)
                    yield one

    def _buffers(self, averaged: list[torch.nn.Module]) -> Iterator[_Kept]:
        for root in self.host.known.live_roots():
            for path, module in root.named_modules():
                what: What = "statistics" if isinstance(module, private.Normalizations) else "buffer"
                for name, buffer in module._buffers.items():
                    # An averaged model's are told as a copy, below.
                    if buffer is not None and root not in averaged:
                        full = f"{path}.{name}" if path else name
                        yield _Kept(buffer, what, full, type(root).__name__)

    @staticmethod
    def _copies_in(averaged: list[torch.nn.Module]) -> Iterator[_Kept]:
        for module in averaged:
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                yield _Kept(tensor, "copy", name, type(module).__name__)

    def _states(self) -> Iterator[_Kept]:
        names = None
        for optimizer in self.host.known.live_optimizers():
            for parameter, state in list(optimizer.state.items()):
                # Optimizers of the program's may keep other things as state.
                for key, value in state.items() if isinstance(state, dict) else ():
                    if isinstance(value, torch.Tensor):
                        names = names if names is not None else self.host.known.parameter_names()
                        of = names.get(id(parameter), "a parameter")
                        yield _Kept(value, "optimizer state", f"{key} of {of}", type(optimizer).__name__)

    def _copies(self) -> Iterator[_Kept]:
        """What was moved in place in several sampled steps and has a parameter's shape: averages of the weights."""
        known = set(self.host.known.storages()) if self._written else set()
        shapes = {p.numel() for p in self.host.known.parameters()} if self._written else set()
        for storage, written in self._written.living():
            # Written in one step only it may be a temporary.
            if storage._cdata in known or len(written.ticks) < 2:
                continue
            flat = torch.empty(0, dtype=written.dtype, device=storage.device)
            count = storage.nbytes() // flat.element_size()
            if count in shapes:
                # Only the storage was noted, weakly: a flat tensor over it is enough to read its numbers.
                flat.set_(storage, 0, (count,), (1,))
                yield _Kept(flat, "copy", "a copy of the weights", "")


def _key(tensor: torch.Tensor) -> int:
    """The identity of a tensor's storage; of one without, its own."""
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else id(tensor)


def _outermost_call(frame: FrameType | None) -> Place | None:
    """The user's line furthest out that calls a module."""
    found = None
    within = False
    for one in outward(frame):
        whose = frames.owner(one.f_code.co_filename)
        if whose == frames.TORCH:
            within = within or one.f_code.co_name == "_wrapped_call_impl"
        elif within and whose == frames.USER:
            found, within = frames.place_of(one), False
    return found
