"""Watches autocast as the state machine that it is: regions, copies, backward calls, scalers, threads and errors."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.amp.autocast_mode import autocast
from torch.amp.grad_scaler import GradScaler

from torchvet.probes.base.kit import EVERY_STEP, Host, Optimizer, Record, Unchecked, Watcher, frames, outward, tap
from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import REGIONS, ModuleHooks
from torchvet.probes.precision.autocast_backward import BackwardPrecisionProbe
from torchvet.probes.precision.autocast_copies import CopyProbe
from torchvet.probes.precision.autocast_errors import ErrorProbe
from torchvet.probes.precision.autocast_functions import FunctionProbe
from torchvet.probes.precision.autocast_operators import OperatorProbe
from torchvet.probes.precision.autocast_peaks import PeakProbe
from torchvet.probes.precision.autocast_regions import Region, Regions
from torchvet.probes.precision.autocast_scaling import ScalingProbe
from torchvet.probes.precision.autocast_threads import ThreadProbe

_WHAT = "autocast"
_COPY = torch.ops.aten._to_copy.default
# A region in a training loop is entered at every step: each time all layers would be heard.
_ENTRIES = 3
"""Entries of a line's regions at first in which layers are listened to; from then on the 4th, 8th, 16th..."""
_MOST_CALLS = 4_000
"""Calls of layers after which a region is no longer listened to: it may be open for the whole run."""


class AutocastWatcher(Watcher):
    """Autocast."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.regions = Regions()
        self._operators = OperatorProbe(self.regions, host.ledger, lambda: host.step)
        self._functions = FunctionProbe(self.regions)
        self._copies = CopyProbe(self.regions)
        self._peaks = PeakProbe(self.regions, host.ledger)
        self._threads = ThreadProbe(self.regions)
        self._backwards = BackwardPrecisionProbe(self.regions)
        self._scaling = ScalingProbe(self.regions, host.known)
        self._errors = ErrorProbe(self.regions)
        # `after` alone: a layer that raises is no layer that has read a copy.
        self._hook = ModuleHooks(after=self._called)
        self._listened: set[Region] = set()
        """The outermost regions for whose sake layers are listened to."""
        self._calls = 0
        self.ignored = EVERY_STEP
        """Until a region is entered, or a scaler is at work."""

    def install(self) -> None:
        """See `Watcher`."""
        self.replace(autocast, "__enter__", tap(self.host, None, after=self._entered))
        self.replace(autocast, "__exit__", self._tap_exit)
        self.replace(autocast, "__call__", self.regions.tap_decorator)
        # Called by `autocast.__init__`: the only sign that a region was asked for and switched itself off.
        self.replace(torch.cuda.amp.common, "amp_definitely_not_available", self.regions.tap_unavailable)
        self.replace(GradScaler, "scale", self._scaling.tap_scale(self.host))
        self.replace(torch.nn.Module, "load_state_dict", tap(self.host, _WHAT, after=self._loaded))

    def remove(self) -> None:
        """See `Watcher`."""
        self._hush()
        # It is there only once a region was entered.
        if self._operator in self.host.ledger.listeners:
            self.host.ledger.listeners.remove(self._operator)
        super().remove()

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """See `Watcher`."""
        stack = self.regions.stack()
        # Copies live until the outermost region ends, so the change matters if that is still open.
        if stack and stack[0].keeps_copies:
            self._changed(stack[0], "step", (p for group in optimizer.param_groups for p in group["params"]))

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """See `Watcher`. A backward within a backward (checkpointing) is part of it."""
        # Checkpointing calls backward within backward.
        if not self.regions.sites or is_grad or private.graph_task() != -1:
            return
        given = tensors if isinstance(tensors, (list, tuple)) else [tensors]
        roots = [t for t in given if isinstance(t, torch.Tensor)]
        self._backwards.starts(roots, self._scaling.scale)
        self._scaling.backward_starts()

    def backward_ended(self, is_grad: bool) -> None:
        """See `Watcher`."""
        if self.regions.sites and not is_grad:
            self._scaling.backward_ended()

    def totals(self, tick: int) -> Iterable[Record]:
        """See `Watcher`."""
        yield from self.regions.sites.values()
        parts = (self._operators, self._functions, self._copies, self._threads, self._backwards, self._scaling)
        for part in (*parts, self._errors):
            yield from part.records()

    def finish(self, how: str, error: BaseException | None) -> None:
        """See `Watcher`."""
        if error is not None:
            self._errors.ended(error)

    def unchecked(self) -> Iterable[Unchecked]:
        """See `Watcher`."""
        sites = self.regions.sites.values()
        if any(site.enabled for site in sites) and not any(site.inside for site in sites):
            reason = "no matrix product was seen in one: inference_mode and compiled code cannot be looked into"
            yield Unchecked(check="operators within autocast regions", reason=reason)
        if sites and REGIONS.ran:
            reason = "layers in compiled regions are not listened to"
            yield Unchecked(check="stale copies of weights, threads without autocast", reason=reason)

    # Layers ------------------------------------------------------------------------------------------------------

    def _listen(self, root: Region) -> None:
        """Hear every layer that runs from now on, but for compiled regions."""
        self._listened.add(root)
        self._calls = 0
        self._hook.on()

    def _hush(self) -> None:
        self._listened.clear()
        self._hook.off()

    def _called(self, module: torch.nn.Module, _: Any, output: Any) -> None:
        # Leaf layers only: they are what reads weights.
        if not self.host.active or next(module.children(), None) is not None:
            return
        with self.host.looking(_WHAT):
            self._calls += 1
            more = self._calls < _MOST_CALLS
            stack = self.regions.stack()
            if not stack:
                self._threads.called(module, output)
            # Checkpointing runs layers again within backward: those read the same copies.
            elif private.graph_task() == -1:
                more = self._copies.called(module) and more
            if not more:
                self._hush()

    def _changed(self, root: Region, kind: Any, parameters: Iterable[torch.Tensor]) -> None:
        if self._copies.changed(root, kind, parameters):
            self._listen(root)

    # Operators ---------------------------------------------------------------------------------------------------

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if func is _COPY:
            with self.host.looking(_WHAT):
                self._peaks.copied(args[0], out)
        if private.graph_task() != -1:
            if self._scaling.noting:
                with self.host.looking(_WHAT):
                    self._scaling.operator(func, args, kwargs, out)
            return
        if self._operators.wants(func):
            with self.host.looking(_WHAT):
                self._operators.forward(func, args, kwargs, out)
        if self._functions.wants(func, out):
            with self.host.looking(_WHAT):
                self._functions.forward(func, args, out)

    # Wrappers: each passes its call through unchanged. -----------------------------------------------------------

    def _entered(self, _: Any, context: autocast) -> None:
        if not self.regions.sites:
            self.heed()
            # Only now: in a program without autocast nobody listens to operators for it.
            self.host.ledger.listeners.append(self._operator)
        # Where no line of the program's is on the stack (in the engine's threads), the one of torch's counts.
        outside = (f for f in outward(sys._getframe(1)) if frames.owner(f.f_code.co_filename) != frames.OWN)
        region = self.regions.entered(context, next(outside))
        region.since = len(self.host.ledger.events)
        region.heard = self.host.sampling and torch.is_grad_enabled()
        entered = region.site.entered
        # The root decides: copies are its.
        if region.root is region and (entered <= _ENTRIES or not entered & (entered - 1)):
            self._listen(region)

    def _tap_exit(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __exit__(context: autocast, kind: Any, error: Any, traceback: Any) -> Any:
            # Before torch's own exit, after which the region's state is gone.
            region = self.regions.left(context)
            if region is not None:
                region.site.heard += region.heard and self.host.sampling
                if region in self._listened:
                    self._listened.discard(region)
                    if not self._listened:
                        self._hush()
                if error is not None and self.host.active:
                    with self.host.looking(_WHAT):
                        self._errors.raised(error, region)
            return original(context, kind, error, traceback)

        return __exit__

    def _loaded(self, _: Any, module: torch.nn.Module, *__: Any, **___: Any) -> None:
        stack = self.regions.stack()
        if stack and stack[0].keeps_copies:
            self._changed(stack[0], "load", module.parameters())
