"""Runs a program's own steps under a precision that was asked for: its autocast and scaler overridden, or it wrapped.

Where the program has autocast regions of its own, they get the mode's dtype, or are switched off; a region that a
module switches off within another stays off. Where it has none, the calls of its outermost modules, and what follows
up to the backward pass (the loss), run under autocast. Without a scaler of its own a float16 run gets dynamic loss
scaling: gradients are divided by the scale on their way into `.grad`, and a step with infinite ones is skipped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Optimizer, Place, Record, StepKind, Watcher, frames
from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import ModuleHooks
from torchvet.probes.precision.half_hardware import devices
from torchvet.recording.records.amp import AmpRun, Unaligned

# GradScaler's own defaults.
_INITIAL, _INTERVAL = 65536.0, 2000
# Tensor cores take half-precision matrices whose sizes are multiples of 8.
_ALIGNED = 8
_KEPT = 5000
ASKED = "_torchvet_asked"
"""On a region that was overridden: whether the program had it enabled."""


class AmpWatcher(Watcher):
    """Mixed precision tried out."""

    @classmethod
    def wanted(cls, options: Any) -> bool:
        """Only where a mode was asked for: this changes what the program computes."""
        return options.amp_mode is not None

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._mode: Any = host.options.amp_mode
        self._dtype = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(self._mode)
        self._depth = self._own_open = 0
        self._own_seen = self._own_scaler = False
        self._wanted: torch.dtype | None = None
        self._place: Place | None = None
        self._around: Any = None
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._scale, self._clean = _INITIAL, 0
        self._hooked: set[int] = set()
        self._handles: list[Any] = []
        self._skipped = 0
        self._seconds: list[float] = []
        self._losses: list[float] = []
        self._loss: float | None = None
        self._last: float | None = None
        # With one thread that computes, its CPU time is what a step takes on a machine that does nothing else.
        # With several threads the process's CPU time counts each of them.
        self._by_cpu = self._device == "cpu" and torch.get_num_threads() == 1
        self._now = time.process_time if self._by_cpu else time.perf_counter

    def install(self) -> None:
        """Override what the program has, and wrap what it has not."""
        autocast, scaler = torch.amp.autocast_mode.autocast, torch.amp.GradScaler
        self.replace(autocast, "__enter__", self._region_begins)
        self.replace(autocast, "__exit__", self._region_ends)
        self.replace(scaler, "__init__", self._scaler_made)
        self.replace(scaler, "scale", self._scaler_scales)
        self.replace(scaler, "update", self._scaler_updates)
        self.replace(torch.autograd, "backward", self._backward)
        # Put in for the whole run, compiled regions included: this run is to be in another precision
        # throughout.
        hooks = ModuleHooks(before=self._before, after=self._after)
        hooks.put()
        self._undo.callback(hooks.take)

    def remove(self) -> None:
        """Leave torch as it was."""
        self._end_wrap()
        for handle in self._handles:
            handle.remove()
        super().remove()

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """Whatever was wrapped is over."""
        # Autocast ends before the optimizer: its arithmetic is float32.
        self._end_wrap()

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """Without gradients a step changes nothing: that is how one is skipped here."""
        self._end_wrap()
        # bfloat16 has float32's range and needs no scale.
        if self._own_scaler or self._dtype is not torch.float16 or not self._hooked:
            return
        parameters = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        # As GradScaler: the scale doubles after 2,000 steps without an infinity, and halves with each.
        if all(bool(torch.isfinite(p.grad).all()) for p in parameters):
            self._clean += 1
            if self._clean % _INTERVAL == 0:
                self._scale *= 2
            return
        self._skipped += 1
        self._scale, self._clean = self._scale / 2, 0
        for parameter in parameters:
            # torch's optimizers pass over parameters without a gradient.
            parameter.grad = None

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step's time, the device's work included."""
        self._end_wrap()
        # A step in which storages are noted takes longer for that.
        self._step_ended(not private.dispatch_modes(), kind in ("training", "manual"))

    def _step_ended(self, timed: bool, counts: bool = True) -> None:
        if self._device == "cuda":
            # The device's work of this step must be within its seconds.
            torch.cuda.synchronize()
        now = self._now()
        # Evaluations and forward passes are no steps to be timed.
        if counts and len(self._losses) < _KEPT:
            if self._last is not None and timed:
                self._seconds.append(now - self._last)
            if self._loss is not None:
                self._losses.append(self._loss)
        self._last, self._loss = now, None

    def totals(self, tick: int) -> Iterable[Record]:
        """The run so far."""
        known = [p for p in self.host.known.parameters() if p.dtype == torch.float32 and p.dim() > 1]
        # Emulated half precision is slower: the report must not call that autocast's doing.
        native = any(d.bf16 if self._mode == "bfloat16" else d.fp16 for d in devices())
        finite = [x for x in self._losses if math.isfinite(x)]
        run = AmpRun(mode=self._mode, device=self._device, how="own" if self._own_seen else "wrapped")
        run.seconds, run.losses, run.not_finite = self._seconds, finite, len(self._losses) - len(finite)
        run.skipped, run.scale = self._skipped, self._scale if self._dtype is torch.float16 else None
        run.peak = torch.cuda.max_memory_allocated() if self._device == "cuda" else None
        run.copies, run.place, run.unaligned = sum(2 * p.numel() for p in known), self._place, list(self._unaligned())
        run.wanted = str(self._wanted).removeprefix("torch.") if self._wanted is not None else None
        run.native, run.clock = native or self._dtype is None, "cpu" if self._by_cpu else "wall"
        yield run

    def _unaligned(self) -> Iterable[Unaligned]:
        names = self.host.known.parameter_names()
        for parameter in self.host.known.parameters():
            # The first convolution's three colours and a head's few classes are not worth a word.
            shape = tuple(parameter.shape)
            if len(shape) > 1 and any(n % _ALIGNED and n > 4 * _ALIGNED for n in shape[:2]):
                yield Unaligned(name=names.get(id(parameter), "a parameter"), shape=shape)

    def _region_begins(self, original: Any) -> Any:
        def __enter__(region: Any) -> Any:
            # Not the region that this probe itself has opened.
            if self.host.active and region is not self._around and region.device == self._device:
                self._override(region)
            return original(region)

        return __enter__

    def _override(self, region: Any) -> None:
        if region._enabled and self._wanted is None:
            self._wanted, self._place = region.fast_dtype, frames.user_place(3)
        # One object may be entered again, overridden by then: what the program asked for is kept for the forecast.
        region.__dict__.setdefault(ASKED, region._enabled)
        # A region that is switched off within a module is an island of float32, and means it.
        if region._enabled or not self._depth:
            region._enabled = self._dtype is not None
            region.fast_dtype = self._dtype or region.fast_dtype
        self._own_seen = True
        self._own_open += 1
        # A mark on the object: regions may be entered again and left in any order.
        region._torchvet_open = True

    def _region_ends(self, original: Any) -> Any:
        def __exit__(region: Any, *error: Any) -> Any:
            if region.__dict__.pop("_torchvet_open", False):
                self._own_open = max(0, self._own_open - 1)
            return original(region, *error)

        return __exit__

    def _scaler_made(self, original: Any) -> Any:
        def __init__(scaler: Any, *args: Any, **kwargs: Any) -> None:
            original(scaler, *args, **kwargs)
            if self._mode != "float16":
                # bfloat16 and float32 need none; with the attribute off all its methods pass through.
                scaler._enabled = False

        return __init__

    def _scaler_scales(self, original: Any) -> Any:
        def scale(scaler: Any, outputs: Any) -> Any:
            if scaler.is_enabled():
                self._own_scaler = True
                if isinstance(outputs, torch.Tensor) and outputs.numel() == 1:
                    self._loss = float(outputs.detach())
            return original(scaler, outputs)

        return scale

    def _scaler_updates(self, original: Any) -> Any:
        def update(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            before = scaler.get_scale()
            result = original(scaler, *args, **kwargs)
            if scaler.is_enabled():
                self._scale = scaler.get_scale()
                # `update` halves the scale only where a step was skipped.
                if self._scale < before:
                    # The optimizer is not called: nobody else hears that a step ended.
                    self._skipped += 1
                    self._step_ended(False)
            return result

        return update

    def _before(self, module: torch.nn.Module, _: Any) -> None:
        # The outermost module only, and not where the program has a region open.
        wrap = not self._depth and not self._own_open and self._around is None and self._dtype is not None
        self._depth += 1
        if wrap and self.host.active:
            self._around = torch.amp.autocast_mode.autocast(self._device, self._dtype)
            self._around.__enter__()

    def _after(self, module: torch.nn.Module, _: Any, output: Any) -> None:
        self._depth = max(0, self._depth - 1)

    def _end_wrap(self) -> None:
        around, self._around = self._around, None
        if around is not None:
            around.__exit__(None, None, None)

    def _backward(self, original: Any) -> Any:
        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            # `Tensor.backward` hands on the tensor itself, callers of `autograd.backward` often a list.
            single = tensors[0] if isinstance(tensors, (list, tuple)) and len(tensors) == 1 else tensors
            plain = isinstance(single, torch.Tensor) and single.numel() == 1
            if not self.host.active:
                return original(tensors, grad_tensors, *args, **kwargs)
            if plain and not self._own_scaler:
                self._loss = float(single.detach())
            self._end_wrap()
            given = grad_tensors[0] if isinstance(grad_tensors, (list, tuple)) and grad_tensors else grad_tensors
            # Several losses, or gradients given by hand, cannot be scaled without changing their meaning.
            if not plain or given is not None or self._own_scaler or self._dtype is not torch.float16:
                return original(tensors, grad_tensors, *args, **kwargs)
            self._hook()
            # In float16, whose largest number is 65504, the first scale would be infinite.
            loss = single.float()
            return original(loss, torch.full_like(loss, self._scale), *args, **kwargs)

        return backward

    def _hook(self) -> None:
        """Gradients reach `.grad` without the scale, so that clipping and accumulation are as in the program."""
        for parameter in self.host.known.parameters():
            # At each backward: parameters may be added while the program runs.
            if parameter.requires_grad and parameter.is_leaf and id(parameter) not in self._hooked:
                self._hooked.add(id(parameter))
                handle = parameter.register_hook(lambda gradient: gradient / self._scale)  # type: ignore[no-untyped-call]
                self._handles.append(handle)
