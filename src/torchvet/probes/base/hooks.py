"""Listens to torch: optimizer steps, backward calls, loader batches, module calls, and little else.

Everything here passes the program's calls through unchanged and is taken out again by `remove()`. Installed for the
whole run are only taps of about a microsecond a call; module hooks that fire on every submodule are on while
steps are still being discovered and during sampled windows.
"""

from __future__ import annotations

import functools
import operator
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import FrameType
from typing import Any, Protocol

import torch
from torch.nn.modules import module as nn_module
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from torchvet.probes.base import frames, gradients
from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import REGIONS, Aside
from torchvet.probes.internals.finite import followed
from torchvet.probes.internals.packing import PACKING
from torchvet.probes.internals.patching import replace

Batch = Any


class Listener(Protocol):
    """Who is told. Each method is called on the thread where the event happens; those that end in `aside` while it is
    not `active`."""

    @property
    def active(self) -> bool: ...

    def optimizer_made(self, optimizer: Optimizer) -> None: ...
    def optimizer_starts(self, optimizer: Optimizer, closure: bool = False) -> None: ...
    def optimizer_ended(self, optimizer: Optimizer) -> None: ...
    def ended_aside(self, optimizer: Optimizer | None, is_grad: bool = False) -> None: ...
    def backward_starts(self, tensors: Any, retain_graph: bool, create_graph: bool, is_grad: bool) -> None: ...
    def backward_ended(self, seconds: float, is_grad: bool) -> None: ...
    def backward_failed(self) -> None: ...
    def batch_failed(self) -> None: ...
    def batch_asked(self, iterator: Any, caller: FrameType) -> None: ...
    def batch_got(self, iterator: Any, batch: Batch, seconds: float) -> None: ...
    def batch_aside(self, iterator: Any) -> None: ...
    def forward_starts(self, module: torch.nn.Module, depth: int) -> None: ...
    def forward_aside(self, module: torch.nn.Module) -> None: ...
    def forward_ended(self, module: torch.nn.Module, output: Any, depth: int) -> None: ...
    def mode_changed(self, module: torch.nn.Module, training: bool) -> None: ...


class Steady(Protocol):
    """Who is asked first while it is `on`: the listener hears nothing of what it says yes to."""

    on: bool
    backward_starts: Callable[[tuple[Any, ...]], bool]
    backward_ended: Callable[[float], None]
    optimizer_starts: Callable[[Optimizer], bool]
    optimizer_ended: Callable[[Optimizer], None]


# From the protocol itself, so that an event added there is sheltered without a second list.
_EVENTS = [name for name in vars(Listener) if not name.startswith("_") and name != "active"]


Timed = Callable[[], AbstractContextManager[object] | None]
"""What accounts for the work that follows; None where it is not to be timed."""


class Sheltered:
    """A listener whose own errors do not reach the program: `keep` notes one, and says whether it is to be held back.

    One that failed in the middle of an event may have missed a step: `keep` is to say so.
    """

    def __init__(self, listener: Listener, keep: Callable[[BaseException], bool], timed: Timed) -> None:
        self._listener = listener
        for name in _EVENTS:
            # Instance attributes: one call less per event than methods that pass it on.
            setattr(self, name, sheltered(getattr(listener, name), keep, timed))

    active: bool = property(operator.attrgetter("_listener.active"))  # type: ignore[assignment]
    """The listener's. Asked several times a step."""


def sheltered(event: Callable[..., None], keep: Callable[[BaseException], bool], timed: Timed) -> Callable[..., None]:
    """One event's method, whose own errors do not reach the program."""

    def hear(*given: Any) -> None:
        try:
            look = timed()
            if look is None:
                event(*given)
            else:
                with look:
                    event(*given)
        # No BaseException: an interrupt or exit that lands in a probe is the program's.
        except Exception as error:
            if not keep(error):
                raise

    return hear


_GRAPHS = (
    ("torch.export", "export"),
    ("torch.jit", "trace"),
    ("torch.jit", "trace_module"),
    ("torch.jit", "_get_trace_graph"),
)
"""What makes a graph of a module by running it."""


class _Depth(threading.local):
    """How many module calls this thread is in: another may be amid one of its own."""

    calls = 0


class Taps:
    """All taps of one session."""

    def __init__(self, listener: Listener, steady: Steady | None = None) -> None:
        self._listener = listener
        self._steady = steady
        self._undo = ExitStack()
        self._modules = Aside(self._hook_modules)
        self._optimizers = Aside(self._hook_optimizers)
        self._depth = _Depth()

    def install(self) -> None:
        """Put the permanent taps in."""
        listener = self._listener
        # Before torch 2.10 a saved tensor can be read only by unpacking it, which calls the program's hooks: nodes that
        # were made under hooks must be known so that they are skipped.
        # `PACKING` costs a call for each saved tensor: only where the slots cannot be read.
        if not private.SLOTS_SHOW_TENSORS:
            PACKING.listen(self._undo)
        REGIONS.watch()
        self._undo.callback(REGIONS.unwatch)
        self._optimizers.on()
        self._undo.callback(self._optimizers.off)
        iterator = private.LoaderIterator
        for owner, name, ours in (
            # `Tensor.backward` looks this name up at each call, so that it is heard here as well.
            (torch.autograd, "backward", _tap_backward(listener, self._steady, torch.autograd.backward)),
            (torch.autograd, "grad", _tap_pass(listener, torch.autograd.grad, is_grad=True)),
            (iterator, "__next__", _tap_next(listener, iterator.__next__)),
            # There is no hook for the making of an optimizer; it matters for a replaced one (LBFGS, an
            # epoch's own).
            (Optimizer, "__init__", _tap_init(listener, Optimizer.__init__)),
            (torch, "compile", _tap_compile(torch.compile)),
            (torch.nn.Module, "train", _tap_train(listener, torch.nn.Module.train)),
        ):
            replace(self._undo, owner, name, ours)
        for owner, name in _GRAPHS:
            module = sys.modules.get(owner)
            if hasattr(module, name):
                replace(self._undo, module, name, _tap_graph(getattr(module, name)))

    def watch_modules(self) -> None:
        """Hook every module call that is not in a compiled region."""
        if not self._modules.wanted:
            self._depth = _Depth()
            self._modules.on()

    def is_within(self, module: torch.nn.Module) -> None:
        """Hooks were put in while this module's call is under way: its end is heard, and so its begin is to be."""
        self._before(module, None)

    def unwatch_modules(self) -> None:
        """Take the module hooks out again."""
        self._modules.off()

    @property
    def watching_modules(self) -> bool:
        """Whether module calls are being reported."""
        return self._modules.wanted

    def remove(self) -> None:
        """Leave torch as it was."""
        self.unwatch_modules()
        self._undo.close()

    def _hook_modules(self, undo: ExitStack) -> None:
        # Global hooks, not those of one module: the roots are not known before the first call.
        undo.callback(nn_module.register_module_forward_pre_hook(self._before).remove)
        # A module that raises must be heard of, too: without its end the depth would stay too high.
        undo.callback(nn_module.register_module_forward_hook(self._after, always_call=True).remove)

    def _hook_optimizers(self, undo: ExitStack) -> None:
        undo.callback(register_optimizer_step_pre_hook(_before_step(self._listener, self._steady)).remove)
        undo.callback(register_optimizer_step_post_hook(_after_step(self._listener, self._steady)).remove)

    def _before(self, module: torch.nn.Module, _: Any) -> None:
        # First of all: the compiler traces what is called here together with the program, and knows this question.
        if torch.compiler.is_compiling():
            return
        depth = self._depth.calls
        if not tracing():
            if self._listener.active:
                self._listener.forward_starts(_uncompiled(module), depth)
            # While another thread is sampled only the boundaries of this one's steps are needed: its
            # top-level calls.
            elif depth == 0:
                self._listener.forward_aside(_uncompiled(module))
        self._depth.calls = depth + 1

    def _after(self, module: torch.nn.Module, _: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        # Hooks may have been put in amid a call: then there is one end more than beginnings.
        self._depth.calls = max(0, self._depth.calls - 1)
        if self._listener.active and not tracing():
            self._listener.forward_ended(_uncompiled(module), output, self._depth.calls)


def tracing() -> bool:
    """Whether torch.compile or TorchScript is tracing, or the program sizes a model with fake tensors: what is
    differentiated then has no values, and is no step of the program's; what is done to it would be a part of it."""
    return private.TracingContext.try_get() is not None or private.tracing_state() is not None or followed()


def _uncompiled(module: torch.nn.Module) -> torch.nn.Module:
    """The program's own module: `torch.compile` puts one of its own around it."""
    # By name, since importing the class would import the compiler, which takes seconds.
    inner = module._modules.get("_orig_mod") if type(module).__name__ == "OptimizedModule" else None
    return module if inner is None else inner


def _tap_graph(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def made(*args: Any, **kwargs: Any) -> Any:
        # What hooks do would become a part of the graph, and a strict export fails at those that it does not know.
        REGIONS.follow()
        with REGIONS.out_of_sight():
            return original(*args, **kwargs)

    return made


def _tap_compile(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        REGIONS.follow()  # the first call has imported the compiler
        return result

    return compiled


def _before_step(listener: Listener, steady: Steady | None) -> Callable[..., None]:
    def call(optimizer: Optimizer, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> None:
        # First of all: in a steady step this is the whole path.
        if steady is not None and steady.on and steady.optimizer_starts(optimizer):
            return
        if listener.active and not (torch.compiler.is_compiling() or tracing()):
            # The optimizer itself is among the arguments.
            closure = (len(args) > 1 or bool(kwargs)) and _has_closure(optimizer, (*args, *(kwargs or {}).values()))
            listener.optimizer_starts(optimizer, closure)

    return call


def _has_closure(optimizer: Optimizer, given: tuple[Any, ...]) -> bool:
    return any(callable(a) and a is not optimizer for a in given)


def _after_step(listener: Listener, steady: Steady | None) -> Callable[..., None]:
    def call(optimizer: Optimizer, *_: Any) -> None:
        if steady is not None and steady.on:
            # Not asked for a second time: what the start let pass is ended on the same way.
            steady.optimizer_ended(optimizer)
            return
        if torch.compiler.is_compiling() or tracing():
            return
        gradients.stepped(optimizer)
        ended = listener.optimizer_ended if listener.active else listener.ended_aside
        ended(optimizer)

    return call


def _tap_backward(listener: Listener, steady: Steady | None, original: Callable[..., Any]) -> Callable[..., Any]:
    tapped = _tap_pass(listener, original, is_grad=False)
    if steady is None:
        return tapped

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        # A call with keywords or flags goes the long way: `backward_starts` takes only the plain call.
        if not (steady.on and steady.backward_starts(args)):
            return tapped(*args, **kwargs)
        start = time.perf_counter()
        try:
            result = original(*args, **kwargs)
        except BaseException:
            listener.backward_failed()
            raise
        steady.backward_ended(time.perf_counter() - start)
        return result

    return run


def _tap_pass(listener: Listener, original: Callable[..., Any], is_grad: bool) -> Callable[..., Any]:
    """Around `torch.autograd.backward`, or `grad`, which takes `inputs` before the arguments that both have."""
    first, flags = ("outputs", 3) if is_grad else ("tensors", 2)

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        # Said even while nobody listens: other threads must not read gradients that this one writes. `autograd.grad`
        # writes none.
        if not is_grad:
            gradients.backward_begins()
        if torch.compiler.is_compiling() or not listener.active or tracing():
            result = original(*args, **kwargs)
            if not (torch.compiler.is_compiling() or tracing()):
                # The thread's steps count even while nothing else is heard: the clock must not miss
                # one.
                listener.ended_aside(None, is_grad)
            return result
        # torch documents both as positional too: `backward(tensors, grad_tensors, retain_graph,
        # create_graph)`.
        retain = args[flags] if len(args) > flags else kwargs.get("retain_graph")
        create = args[flags + 1] if len(args) > flags + 1 else kwargs.get("create_graph")
        listener.backward_starts(args[0] if args else kwargs.get(first), bool(retain), bool(create), is_grad)
        start = time.perf_counter()
        try:
            result = original(*args, **kwargs)
        except BaseException:
            listener.backward_failed()
            raise
        listener.backward_ended(time.perf_counter() - start, is_grad)
        return result

    return run


_loading = threading.local()
"""Whether no loader is asked for a batch on a thread (`outer`)."""


def _tap_next(listener: Listener, original: Callable[[Any], Batch]) -> Callable[[Any], Batch]:
    @functools.wraps(original)
    def __next__(self: Any) -> Batch:
        if not listener.active:
            listener.batch_aside(self)
            return original(self)
        # The frame is the loop that asks: an evaluation is told by what is around it.
        listener.batch_asked(self, sys._getframe(1))
        outer = getattr(_loading, "outer", True)
        _loading.outer = False
        start = time.perf_counter()
        try:
            batch = original(self)
        # StopIteration is the usual case, and a batch that never came must not stay under way.
        except BaseException:
            listener.batch_failed()
            raise
        finally:
            _loading.outer = outer
        # A loader within another one's dataset takes time of that one's.
        listener.batch_got(self, batch, time.perf_counter() - start if outer else 0.0)
        return batch

    return __next__


def _tap_init(listener: Listener, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if not torch.compiler.is_compiling() and listener.active and not tracing():
            listener.optimizer_made(self)

    return __init__


def _by_program(caller: FrameType) -> bool:
    """Whether a frame that switches modes is none of torch's; `eval()` is, and calls `train(False)` for the program."""
    return frames.owner(caller.f_code.co_filename) != frames.TORCH or caller.f_code.co_name == "eval"


def _tap_train(listener: Listener, original: Callable[..., Any]) -> Callable[..., Any]:
    # None where another tool has put something in the place of `train`: then each call counts as from outside.
    code = getattr(original, "__code__", None)

    @functools.wraps(original)
    def train(self: torch.nn.Module, mode: bool = True) -> Any:
        result = original(self, mode)
        caller = sys._getframe(1)
        # Recursion into children comes through here too: only the call from outside counts.
        if caller.f_code is not code and listener.active and self.training is not None and _by_program(caller):
            listener.mode_changed(self, mode)
        return result

    return train
