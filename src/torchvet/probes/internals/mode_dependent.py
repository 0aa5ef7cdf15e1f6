"""Operators that compute in another way while any dispatch mode is on, and how torchvet's modes step out of their way.

torch asks in places whether a dispatch mode is on (`isTensorSubclassLike`) and then takes a slower path that suits
tensor subclasses. Its last digits differ. The list comes from running every sample of torch's `op_db`, and products of
many shapes, with and without a mode that does nothing (torch 2.13.0, CPU, float32, float64 and bfloat16, forward and
backward): these are all that differed from run to run with the mode and not without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import Aside
from torchvet.probes.internals.patching import replace

Applies = Callable[..., bool]
_SPECTRAL = ("nuc", 2, -2)


def _one_matrix_for_a_batch(a: Any, b: Any, *_: Any, **__: Any) -> bool:
    """`(16, 3, 3) @ (1, 3, 3)`: folded into one product under a mode, expanded into sixteen without."""
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        return False
    # Where both or neither have one matrix torch takes the same path with and without a mode.
    return a.dim() == b.dim() == 3 and (a.size(0) == 1) != (b.size(0) == 1)


def _always(*_: Any, **__: Any) -> bool:
    """Singular values and eigenvalues are computed together with their vectors under a mode."""
    return True


def _spectral(_: Any, *args: Any, **kwargs: Any) -> bool:
    order = args[0] if args else kwargs.get("ord")
    if isinstance(args[1] if len(args) > 1 else kwargs.get("dim"), int):
        return False  # of vectors
    return order in _SPECTRAL if isinstance(order, (str, int, float)) else False


def _nuclear(_: Any, *args: Any, **kwargs: Any) -> bool:
    """`torch.norm` takes a number for the order of a vector's norm."""
    order = args[0] if args else kwargs.get("p")
    return isinstance(order, str) and order == "nuc"


def _spectral_by_default(_: Any, *args: Any, **kwargs: Any) -> bool:
    return _spectral(_, *args, **kwargs) if args or "p" in kwargs else True


def _of_a_number_that_learns(_: Any, *args: Any, **kwargs: Any) -> bool:
    value = args[1] if len(args) > 1 else kwargs.get("value")
    return isinstance(value, torch.Tensor) and value.requires_grad


_FORWARD: tuple[tuple[Any, str, Applies], ...] = (
    (torch, "matmul", _one_matrix_for_a_batch),
    (torch.linalg, "matmul", _one_matrix_for_a_batch),
    (torch.Tensor, "matmul", _one_matrix_for_a_batch),
    (torch.Tensor, "__matmul__", _one_matrix_for_a_batch),
    (torch.linalg, "svdvals", _always),
    (torch.linalg, "eigvalsh", _always),
    (torch.linalg, "cond", _spectral_by_default),
    (torch.linalg, "matrix_rank", _always),
    (torch.linalg, "matrix_norm", _spectral),
    (torch.linalg, "norm", _spectral),
    (torch, "norm", _nuclear),
)
_BACKWARD: tuple[tuple[Any, str, Applies], ...] = (
    (torch, "prod", _always),
    (torch.Tensor, "prod", _always),
    (torch, "masked_fill", _of_a_number_that_learns),
    (torch.Tensor, "masked_fill", _of_a_number_that_learns),
    (torch.Tensor, "masked_fill_", _of_a_number_that_learns),
)
"""What differs in its backward only."""


class SteppingAside:
    """Wraps the operators above for as long as torchvet's modes are on."""

    def __init__(self) -> None:
        self._on: list[Any] = []
        self._wrappers = Aside(self._install)

    def mode_entered(self, mode: Any) -> None:
        """One more mode is on."""
        self._on.append(mode)
        self._wrappers.on()

    def mode_left(self, mode: Any) -> None:
        """One mode fewer is on; after the last torch is as it was."""
        self._on = [other for other in self._on if other is not mode]
        if not self._on:
            self._wrappers.off()

    def _install(self, undo: ExitStack) -> None:
        for owner, name, applies in _FORWARD:
            self._wrap(undo, owner, name, functools.partial(self._forward, applies, name))
        for owner, name, applies in _BACKWARD:
            self._wrap(undo, owner, name, functools.partial(self._backward, applies))

    @staticmethod
    def _wrap(undo: ExitStack, owner: Any, name: str, around: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        replace(undo, owner, name, functools.wraps(original)(around(original)))

    def _forward(self, applies: Applies, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def aside(*args: Any, **kwargs: Any) -> Any:
            if not applies(*args, **kwargs):
                return original(*args, **kwargs)
            with self._modes_off() as modes:
                out = original(*args, **kwargs)
            # What ran without the modes has made storages that they did not see.
            for mode in modes:
                # Only the result: what the operator made and freed within is not seen.
                mode.ran_aside(f"aten.{name.strip('_')}", out)
            return out

        return aside

    def _backward(self, applies: Applies, original: Callable[..., Any]) -> Callable[..., Any]:
        def marked(*args: Any, **kwargs: Any) -> Any:
            out = original(*args, **kwargs)
            # Its forward is the same under a mode: only the node that it has made needs marking.
            if isinstance(out, torch.Tensor) and out.grad_fn is not None and applies(*args, **kwargs):
                self._aside_of(out.grad_fn)
            return out

        return marked

    def _aside_of(self, node: Any) -> None:
        """Take the modes off while a node of the graph computes."""
        around = ExitStack()

        def before(_: Any) -> None:
            around.enter_context(self._modes_off())

        # A pair of hooks on this one node: the modes stay on for the rest of the pass.
        node.register_prehook(before)
        node.register_hook(lambda *_: around.close())

    @contextmanager
    def _modes_off(self) -> Iterator[list[Any]]:
        """No dispatch mode is on; none is taken off where one of the program's is among them: it is on by itself."""
        stack = private.dispatch_modes()
        # The program's own mode makes torch take the slower path with or without torchvet's: nothing differs.
        if not all(mode in self._on for mode in stack):
            yield []
            return
        # Popped and pushed, not left and entered: the modes' own state is to stay as it is.
        taken = [private.pop_mode() for _ in stack]
        try:
            yield taken
        finally:
            for mode in reversed(taken):
                private.push_mode(mode)


STEPPING_ASIDE = SteppingAside()
"""Of this process: torch's functions are its own only once."""
