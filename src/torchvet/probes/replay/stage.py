"""The child's own torch: shared tensors copied, the batch handed out again, optimizers and files at rest."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import ModuleHooks
from torchvet.probes.internals.patching import replace
from torchvet.probes.internals.simulated import open_up
from torchvet.probes.objects.containers import tensors_in


class NoBatch(Exception):
    """The slice asks for a batch that is not at hand."""


def set_up(known: KnownMemory, batch: Any, names: dict[str, Any], clear_gradients: bool) -> None:
    """Only in a process of one's own: nothing here is taken back."""
    # A simulated GPU needs leave to run within another call of torch's.
    open_up()
    unshare([*known.parameters(), *tensors_in(batch, 4), *(t for v in names.values() for t in tensors_in(v, 3))])
    unshare(b for m in known.live_roots() for b in m.buffers())
    given = iter(() if batch is None else (batch,))

    def next_batch(self: Any) -> Any:
        for one in given:
            return one
        raise NoBatch("the step takes another batch")

    # The pipes to the loader's workers are cut off here: only the batch at hand can be handed out, and once.
    # On the base class: all loaders' iterators inherit it.
    private.LoaderIterator.__next__ = next_batch
    # A checkpoint at the end of a step would be written over the program's own.
    torch.save = _nothing
    for optimizer in known.live_optimizers():
        # On the instance: the class's stays as it is for whoever looks.
        optimizer.step = _nothing  # type: ignore[method-assign, assignment]
    # `.grad` still holds what the failed pass made, which would be taken for what the repeated one makes.
    if clear_gradients:
        for parameter in known.parameters():
            parameter.grad = None
    # A dispatch mode sees no operator of compiled code. A program without dynamo is not made to import it.
    if "torch._dynamo" in sys.modules:
        torch.compiler.set_stance("force_eager")
    # Otherwise half copies of weights made in the failed pass are used, and the casts themselves are not seen.
    torch.clear_autocast_cache()


def _nothing(*_: Any, **__: Any) -> None:
    """Stands for what a step that is done again must not do."""


def unshare(tensors: Any) -> None:
    """What the parent would see changes of gets memory of its own."""
    for tensor in tensors:
        try:
            # Workers' batches lie in shared memory: a write in place would reach the parent.
            if tensor.is_shared() and not tensor.is_cuda:
                tensor.data = tensor.data.clone()
        except (RuntimeError, NotImplementedError):  # layouts without a storage
            continue


class Modules:
    """The modules that are running in this thread, by hooks on every call."""

    def __init__(self, known: KnownMemory) -> None:
        self._known = known
        self._stack: list[torch.nn.Module] = []
        self._thread = threading.get_ident()
        self.given: Callable[[Any], None] = lambda output: None
        """Hears what an outermost module gives."""

    def follow(self, undo: ExitStack | None = None) -> None:
        """Start, until `undo` is closed if one is given."""
        hooks = ModuleHooks(before=self._before, after=self._after)
        hooks.put()
        if undo is not None:
            undo.callback(hooks.take)

    def path(self) -> str | None:
        """The innermost one's name."""
        if not self._stack or threading.get_ident() != self._thread:
            return None
        # The outermost running module may be one that no look has met.
        self._known.add_root(self._stack[0])
        name = self._known.name_of(self._stack[-1])
        return name if name is None else self._uncompiled(name)

    def _uncompiled(self, name: str) -> str:
        """As if the modules around had not been compiled: `torch.compile` puts a module of its own around each."""
        inner = getattr(self._stack[0], "_orig_mod", None)
        if inner is not None and name.startswith("OptimizedModule"):
            name = type(inner).__name__ + name.removeprefix("OptimizedModule")
        return name.replace("._orig_mod", "")

    def _before(self, module: torch.nn.Module, _: Any) -> None:
        if threading.get_ident() == self._thread:
            self._stack.append(module)

    def _after(self, module: torch.nn.Module, _: Any, output: Any) -> None:
        # Whatever a call that was under way at the start, or that raised, has left above it goes with it.
        # Calls that began before the hooks have only an end.
        if threading.get_ident() == self._thread and any(m is module for m in self._stack):
            while self._stack.pop() is not module:
                pass
            if not self._stack:
                self.given(output)


class Autocast:
    """The autocast that the program has asked for: within an operator it looks switched off."""

    def __init__(self) -> None:
        self._now = self._read()

    def follow(self, undo: ExitStack) -> None:
        """Hear of every block that is entered and left, until `undo` is closed."""
        for name in ("__enter__", "__exit__"):
            replace(undo, torch.autocast, name, self._after(torch.autocast.__dict__[name]))

    def now(self) -> str | None:
        """The dtype in force, or None."""
        return self._now

    def _after(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self._now = self._read()
            return result

        return call

    @staticmethod
    def _read() -> str | None:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                return str(torch.get_autocast_dtype(device)).removeprefix("torch.")
        return None
