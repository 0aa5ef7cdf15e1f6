"""The child's own torch: shared tensors copied, the batch handed out again, optimizers and files at rest."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as nn_module
from torch.utils.data import dataloader

from torchvet.probes.containers import tensors_in
from torchvet.probes.known import KnownMemory


class NoBatch(Exception):
    """The slice asks for a batch that is not at hand."""


def set_up(known: KnownMemory, batch: Any, names: dict[str, Any], clear_gradients: bool) -> None:
    """Only in a process of one's own: nothing here is taken back."""
    unshare([*known.parameters(), *tensors_in(batch, 4), *(t for v in names.values() for t in tensors_in(v, 3))])
    unshare(b for m in known.live_roots() for b in m.buffers())
    given = iter(() if batch is None else (batch,))

    def next_batch(self: Any) -> Any:
        for one in given:
            return one
        raise NoBatch("the step takes another batch")

    dataloader._BaseDataLoaderIter.__next__ = next_batch  # type: ignore[method-assign]
    torch.save = _nothing
    for optimizer in known.live_optimizers():
        optimizer.step = _nothing  # type: ignore[method-assign, assignment]
    if clear_gradients:
        for parameter in known.parameters():
            parameter.grad = None
    if "torch._dynamo" in sys.modules:
        torch.compiler.set_stance("force_eager")
    torch.clear_autocast_cache()


def _nothing(*_: Any, **__: Any) -> None:
    """Stands for what a step that is done again must not do."""


def unshare(tensors: Any) -> None:
    """What the parent would see changes of gets memory of its own."""
    for tensor in tensors:
        try:
            if tensor.is_shared() and not tensor.is_cuda:
                tensor.data = tensor.data.clone()
        except (RuntimeError, NotImplementedError):  # layouts without a storage
            continue


class Modules:
    """The modules that are running, by hooks on every call."""

    def __init__(self, known: KnownMemory) -> None:
        self._known = known
        self._stack: list[torch.nn.Module] = []

    def follow(self) -> None:
        """Start."""
        nn_module.register_module_forward_pre_hook(self._before)
        nn_module.register_module_forward_hook(self._after, always_call=True)

    def path(self) -> str | None:
        """The innermost one's name."""
        if not self._stack:
            return None
        self._known.add_root(self._stack[0])
        return self._known.name_of(self._stack[-1])

    def _before(self, module: torch.nn.Module, _: Any) -> None:
        self._stack.append(module)

    def _after(self, module: torch.nn.Module, _: Any, output: Any) -> None:
        if self._stack:
            self._stack.pop()


class Autocast:
    """The autocast that the program has asked for: within an operator it looks switched off."""

    def __init__(self) -> None:
        self._now = self._read()

    def follow(self) -> None:
        """Hear of every block that is entered and left."""
        kind = torch.autocast
        kind.__enter__ = self._after(kind.__enter__)  # type: ignore[method-assign]
        kind.__exit__ = self._after(kind.__exit__)  # type: ignore[method-assign]

    def now(self) -> str | None:
        """The dtype in force, or None."""
        return self._now

    def _after(self, original: Callable[..., Any]) -> Callable[..., Any]:
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
