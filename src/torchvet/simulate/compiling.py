"""`torch.compile` on a simulated device: Triton's kernels are not simulated, so what is compiled runs as it stands."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from torchvet.simulate import refusals

_EAGER = frozenset(["eager", "aot_eager"])
"""Backends that generate no code: they are left alone."""


def install() -> None:
    """Let what asks for generated code run without."""
    compile_: Callable[..., Any] = torch.compile

    def compile(model: Any = None, *, backend: Any = "inductor", **kwargs: Any) -> Any:
        if backend in _EAGER or callable(backend) or kwargs.get("disable"):
            return compile_(model, backend=backend, **kwargs)
        _tell()
        if model is None:
            return lambda function: compile(function, backend=backend, **kwargs)
        return _uncompiled(model)

    compile.__doc__ = compile_.__doc__
    torch.compile = compile
    torch.nn.Module.compile = lambda self, *args, **kwargs: _tell()  # type: ignore[method-assign, assignment]


def _uncompiled(model: Any) -> Any:
    """A module in the wrapper that programs unwrap by `_orig_mod`; a function as it is."""
    if not isinstance(model, torch.nn.Module):
        return model
    from torch._dynamo.eval_frame import DisableContext, OptimizedModule

    return OptimizedModule(model, DisableContext())


def _tell() -> None:
    refusals.asked.setdefault("torch.compile", "What is compiled ran uncompiled: Triton's kernels need a GPU.")
    warnings.warn("torchvet: torch.compile is not simulated; the program runs uncompiled", stacklevel=3)
