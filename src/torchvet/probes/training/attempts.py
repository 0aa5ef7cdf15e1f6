"""Changes a program as it runs in one way that may make its steps quicker, and times them."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from torchvet.probes.base.kit import Host, Record, StepKind, Watcher, frames
from torchvet.probes.internals.compiled_regions import ModuleHooks
from torchvet.recording.records.attempt import Attempt

_MOST_STEPS = 5000
_LOSSES = 16
_SWITCHES = ("foreach", "fused", "capturable", "differentiable")
"""Arguments of optimizers of which a program that gives one has chosen."""
_OPTIMIZERS = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)
_OF_IMAGES = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
_TRAINS = ("training", "backward", "manual")


class Attempts(Watcher):
    """A quicker way, tried out."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        change, _, number = host.options.attempt.partition("=")
        self._number = int(number or 0)
        # The attempts' names are those of the methods below.
        self._change: Callable[[], None] = getattr(self, f"_{change.replace('-', '_')}")
        self._found = Attempt(change=host.options.attempt)
        self._last: float | None = None
        self._seen: set[int] = set()

    @classmethod
    def wanted(cls, options: Any) -> bool:
        """Only where an attempt was asked for: it changes how the program computes."""
        return options.attempt is not None

    def install(self) -> None:
        """Make the change."""
        self._change()

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """The loss, to tell whether the change changes results."""
        # Losses in the order of backward calls: runs are compared one by one.
        if isinstance(tensors, torch.Tensor) and tensors.numel() == 1 and not is_grad:
            self._found.losses.append(float(tensors.detach()))
            if len(self._found.losses) >= _LOSSES:  # to read one is to wait for it
                self.ignored = frozenset(["backward_starts"])
                self.heeding()

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step's time, the device's work included."""
        if torch.cuda.is_available():
            # Each way is to be charged with its device's work.
            torch.cuda.synchronize()
        now = time.perf_counter()
        if self._last is not None and kind in _TRAINS and len(self._found.seconds) < _MOST_STEPS:
            self._found.seconds.append(now - self._last)
        self._last = now

    def totals(self, tick: int) -> Iterable[Record]:
        """The run so far."""
        return [self._found]

    def _applies(self) -> None:
        self._found.applied += 1
        if self._found.place is None:
            self._found.place = frames.user_place(2)

    # The changes ------------------------------------------------------------------------------------------------

    def _none(self) -> None:
        """The program as it is."""

    def _workers(self) -> None:
        """Loaders that load in the main process load in so many others."""

        def change(given: dict[str, Any]) -> None:
            # Workers would each go through all of an iterable dataset, unless it shares itself out.
            if not given.get("num_workers") and not isinstance(given.get("dataset"), IterableDataset):
                given["num_workers"], given["persistent_workers"] = self._number, True
                self._applies()

        self._given(DataLoader, change)

    def _batch(self) -> None:
        """Batches so many times as large."""

        def change(given: dict[str, Any]) -> None:
            size = given.get("batch_size")
            if isinstance(size, int) and not isinstance(size, bool):
                given["batch_size"] = size * self._number
                self._applies()

        self._given(BatchSampler, change)

    def _fused(self) -> None:
        """Optimizers step in one kernel."""
        self._switch("fused")

    def _foreach(self) -> None:
        """Optimizers step on all parameters at once."""
        self._switch("foreach")

    def _switch(self, name: str) -> None:
        def change(given: dict[str, Any]) -> None:
            if not any(given.get(switch) for switch in _SWITCHES):
                given[name] = True
                self._applies()

        for kind in _OPTIMIZERS:
            self._given(kind, change)

    def _threads(self) -> None:
        """So many threads within an operator, whatever the program says."""
        if torch.get_num_threads() != self._number:
            self._found.applied = 1
        torch.set_num_threads(self._number)

        def keep(original: Any) -> Any:
            def set_num_threads(number: int) -> None:
                self._applies()

            return set_num_threads

        self.replace(torch, "set_num_threads", keep)

    def _no_anomaly(self) -> None:
        """Anomaly detection stays off."""

        def keep_off(original: Any) -> Any:
            def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
                if mode:
                    self._applies()
                original(False, check_nan)

            return set_anomaly_enabled

        self.replace(torch, "set_anomaly_enabled", keep_off)

    def _channels_last(self) -> None:
        """Models that convolve images keep their channels innermost, and are given their images so."""

        def begins(module: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            if id(module) not in self._seen and not any(map(is_lazy, module.parameters())):
                self._seen.add(id(module))
                # Other models gain nothing by it.
                if any(isinstance(m, _OF_IMAGES) for m in module.modules()):
                    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
                    self._applies()
            return tuple(map(_innermost, args))

        self._outermost(begins)

    def _bfloat16(self) -> None:
        """Models that are trained in float32 run under autocast, and give what they gave in float32."""
        regions: list[torch.autocast] = []

        def begins(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
            first = next(module.parameters(), None)
            if first is None or first.dtype != torch.float32 or not torch.is_grad_enabled():
                return
            kind = first.device.type
            # The program's own region is left as it is.
            if not torch.is_autocast_enabled(kind):
                regions.append(torch.autocast(kind, torch.bfloat16))
                regions[-1].__enter__()  # type: ignore[no-untyped-call]
                self._applies()

        def ended(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> Any:
            if not regions:
                return None
            regions.pop().__exit__(None, None, None)
            return _widened(output)

        self._outermost(begins, ended)

    def _compile(self) -> None:
        """Models that are trained are compiled, from their second call on."""

        def begins(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
            if id(module) not in self._seen and torch.is_grad_enabled() and any(True for _ in module.parameters()):
                self._seen.add(id(module))
                # In place: the module's class, hooks and state dict stay what they are.
                module.compile()
                self._applies()

        self._outermost(begins)

    def _outermost(self, begins: Callable[..., Any], ended: Callable[..., Any] = lambda *_: None) -> None:
        """Hear of each call of a module that is not within another's."""
        self._inside = 0

        def before(module: torch.nn.Module, args: tuple[Any, ...]) -> Any:
            # Counted for all modules: only the outermost call is the program's.
            self._inside += 1
            return begins(module, args) if self._inside == 1 else None

        def after(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> Any:
            self._inside -= 1
            return ended(module, args, output) if self._inside == 0 else None

        hooks = ModuleHooks(before, after)
        hooks.on()
        self._undo.callback(hooks.off)

    def _given(self, kind: type, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the arguments that objects of a class are made with."""

        def wrap(original: Any) -> Any:
            signature = inspect.signature(original)

            def __init__(*args: Any, **kwargs: Any) -> None:
                try:
                    bound = signature.bind(*args, **kwargs)
                # `bind` fails as the constructor would.
                except TypeError:  # the program's own fault: it is told as it would be
                    original(*args, **kwargs)
                    return
                change(bound.arguments)
                original(*bound.args, **bound.kwargs)

            return __init__

        self.replace(kind, "__init__", wrap)


def _innermost(value: Any) -> Any:
    image = isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_floating_point()
    return value.contiguous(memory_format=torch.channels_last) if image else value


def _widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype == torch.bfloat16 else value
    return type(value)(map(_widened, value)) if type(value) in (tuple, list) else value
