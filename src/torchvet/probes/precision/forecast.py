"""Decides in which steps a precision forecast looks, and tells its dispatch mode where the program is."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import torch

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import Host, Optimizer, Record, StepKind, Unchecked, Watcher, tap
from torchvet.probes.internals.compiled_regions import REGIONS, Aside, ModuleHooks
from torchvet.probes.internals.patching import replace
from torchvet.probes.precision.amp import ASKED
from torchvet.probes.precision.forecast_mode import ForecastMode
from torchvet.probes.precision.half_hardware import devices
from torchvet.recording.records.forecast import ForecastRun

_FIRST = 3
"""Steps at first that are all looked at; then one in every eighth of those that have passed: magnitudes grow, so that
the last look is never further from the end than a ninth of the run."""
_WHAT = "precision forecast"


class ForecastWatcher(Watcher):
    """Precision forecast."""

    @classmethod
    def wanted(cls, options: Any) -> bool:
        """Only where it was asked for: a sampled step takes several times as long."""
        return bool(options.precision_forecast)

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.mode = ForecastMode()
        self.mode.module = self._module
        # The mode stays on through a compiled region, where it cannot be left, and notes nothing.
        self.mode.wanted = lambda: host.active and not REGIONS.inside
        self.mode.guard = lambda: host.looking(_WHAT)
        self._stack: list[torch.nn.Module] = []
        self._aside = Aside(self._put_in)
        self._hooks = ModuleHooks(before=self._before, after=self._after)
        self._on = False
        self._thread = 0
        self._passed = 0
        self._next = 0
        self._ticks: list[int] = []
        self._scaler: weakref.ref[Any] | None = None
        self._scale = 1.0

    def install(self) -> None:
        """Hear which scaler scales the loss."""
        self.replace(torch.amp.GradScaler, "scale", tap(self.host, None, before=self._scales))

    def _scales(self, scaler: Any, outputs: Any) -> None:
        self._scaler = weakref.ref(scaler)

    def remove(self) -> None:
        """Leave torch as it was."""
        self._leave()
        super().remove()

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """The model is there: the first step is looked at from here on."""
        # A run of one step deserves a forecast too.
        if not self._passed and not self._on:
            self._enter()

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """What an optimizer computes is float32."""
        self.mode.flush()
        self.mode.optimizing = True

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """It returned."""
        self.mode.optimizing = False

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """The loss scale in force."""
        scaler = self._scaler() if self._scaler is not None else None
        # Gradients are scaled by it: the measure takes that out.
        if self._on and scaler is not None and scaler.is_enabled():
            self._scale = self.mode.scale = float(scaler.get_scale())

    def backward_ended(self, is_grad: bool) -> None:
        """Gradients of parameters that autocast would have read in half."""
        self.mode.flush()
        if not self._on or is_grad:
            return
        names = self.host.known.parameter_names()
        for parameter in self.host.known.parameters():
            gradient = gradient_of(parameter)
            # A parameter that only float32 operators read keeps its range under autocast.
            if gradient is not None and self.mode.of_half(parameter):
                self.mode.parameter(names.get(id(parameter), "a parameter of no root module"), gradient)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: is the next one to be looked at?"""
        self._passed += 1
        if self._on:
            self._ticks.append(tick)
            self.mode.step_ended()
        if self._passed >= self._next:
            self._next = self._passed + (1 if self._passed < _FIRST else max(1, self._passed // 8))
        # The last step of a run that was bounded is always looked at: values are largest there.
        wanted = self._passed < _FIRST or self._passed + 1 >= self._next or tick + 1 == self.host.options.steps
        self.mode.tick = tick + 1
        if wanted and not self._on:
            self._enter()
        # Else it stays on for one more step: a boundary within backward must not end it.
        elif self._on and not wanted and self.mode.can_leave and threading.get_ident() == self._thread:
            self._leave()

    def totals(self, tick: int) -> Iterable[Record]:
        """What has been measured so far."""
        mode, tallies = self.mode, self.mode.tallies
        if not mode.operators or not self._ticks:
            return
        yield from tallies.records()
        run = ForecastRun(first=self._ticks[0], last=self._ticks[-1], sampled=len(self._ticks), devices=devices())
        run.half, run.float32, run.off = tallies.half, tallies.float32, tallies.off
        run.own, run.seconds, run.scale = min(mode.own, default=None), round(mode.seconds, 4), self._scale
        yield run

    def finish(self, how: str, error: BaseException | None) -> None:
        """The program has ended."""
        self._leave()

    def unchecked(self) -> Iterable[Unchecked]:
        """Why there may be nothing to forecast from."""
        if REGIONS.ran:
            yield Unchecked(check=_WHAT, reason="compiled regions are not looked into; run it without torch.compile")
        if "float16" in self.mode.own:
            reason = "the program computes in float16 already: what overflowed there is not seen; run it in float32"
            yield Unchecked(check=_WHAT, reason=reason)
        elif not self._ticks or not self.mode.tallies.half:
            yield Unchecked(check=_WHAT, reason="no operator that autocast would run in float16 was seen in any step")

    def _enter(self) -> None:
        if not self.mode.enter():
            return
        self._on, self._thread = True, threading.get_ident()
        self.mode.tick = self.host.tick + 1
        # Calls that are under way were not seen to begin.
        self._stack.clear()
        self.mode.inside = False
        self._aside.on()

    def _put_in(self, undo: ExitStack) -> None:
        self._hooks.put()
        undo.callback(self._hooks.take)
        functional, autocast = torch.nn.functional, torch.amp.autocast_mode.autocast
        for owner, name, wrap in (
            (functional, "scaled_dot_product_attention", self._attention),
            *((torch.Tensor, name, self._widening) for name in ("float", "to", "type")),
            (autocast, "__enter__", self._region_begins),
            (autocast, "__exit__", self._region_ends),
        ):
            replace(undo, owner, name, wrap(getattr(owner, name)))

    def _leave(self) -> None:
        if self._on:
            self.mode.leave()
            self._aside.off()
            self.mode.forget()
            self._on = False

    def _before(self, module: torch.nn.Module, _: Any) -> None:
        self._stack.append(module)
        self.mode.inside = True

    def _after(self, module: torch.nn.Module, _: Any, output: Any) -> None:
        if self._stack:
            self._stack.pop()
        # CUDA has a fused kernel for cells, which autocast runs in half.
        if isinstance(module, torch.nn.RNNCellBase):
            # One operator under autocast, many here: what it gives back is half whatever state it was given.
            with self.host.looking(_WHAT):
                for part in output if isinstance(output, tuple) else (output,):
                    self.mode.fused_result(part)
        self.mode.inside = bool(self._stack)

    def _module(self) -> str | None:
        return self.host.known.name_of(self._stack[-1]) if self._stack else None

    def _attention(self, original: Any) -> Any:
        mode = self.mode

        def scaled_dot_product_attention(*args: Any, **kwargs: Any) -> Any:
            # Within it the CPU's decomposition would count as operators that CUDA does not have.
            mode.fused += 1
            try:
                result = original(*args, **kwargs)
            finally:
                mode.fused -= 1
            with self.host.looking(_WHAT):
                mode.fused_result(result)
            return result

        return scaled_dot_product_attention

    def _widening(self, original: Any) -> Any:
        """`x.float()` does nothing to float32, and under autocast it would end the half."""
        always = original.__name__ == "float"

        def widen(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(tensor, *args, **kwargs)
            # `x.to(y.dtype)` asks for float32 here as well, and does not mean it.
            # The same object: nothing was converted here. Under autocast it would have been.
            if result is tensor and (always or "float32" in sys._getframe(1).f_code.co_names):
                self.mode.widened(tensor)
            return result

        return widen

    def _region_begins(self, original: Any) -> Any:
        def __enter__(region: Any) -> Any:
            # Only within a module: a region that is off around a whole model is the program as it is.
            if not region.__dict__.get(ASKED, region._enabled) and self._stack:
                self.mode.off += 1
                region._torchvet_off = True
            return original(region)

        return __enter__

    def _region_ends(self, original: Any) -> Any:
        def __exit__(region: Any, *error: Any) -> Any:
            if region.__dict__.pop("_torchvet_off", False):
                self.mode.off = max(0, self.mode.off - 1)
            return original(region, *error)

        return __exit__
