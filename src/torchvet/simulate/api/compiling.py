"""`torch.compile` on a simulated device: there are no Triton kernels, so what is to be compiled runs as it stands.

Backends that generate no code are no exception: Dynamo cannot trace through the mode that translates devices.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from torchvet.simulate import refusals


def install() -> None:
    """Let what asks for generated code run without."""
    documentation = torch.compile.__doc__

    def compile(model: Any = None, **kwargs: Any) -> Any:
        _tell()
        return _uncompiled if model is None else _uncompiled(model)

    compile.__doc__ = documentation
    torch.compile = compile
    torch.nn.Module.compile = lambda self, *args, **kwargs: _tell()  # type: ignore[method-assign]


def _uncompiled(model: Any) -> Any:
    """A module in the wrapper that programs unwrap by `_orig_mod`; a function as it is."""
    if not isinstance(model, torch.nn.Module):
        return model
    from torch._dynamo.eval_frame import DisableContext, OptimizedModule

    # Programs unwrap by `_orig_mod`, and state dicts have its name in their keys.
    return OptimizedModule(model, DisableContext())


def _tell() -> None:
    # Once in the report, however often it is called.
    refusals.asked.setdefault("torch.compile", "What is compiled ran uncompiled: Triton's kernels need a GPU.")
    warnings.warn("torchvet: torch.compile is not simulated; the program runs uncompiled", stacklevel=_callers_level())


def _callers_level() -> int:
    """How far up from `_tell` the first frame is that is neither torchvet's nor torch's."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        level, frame = level + 1, frame.f_back
    return level


_BETWEEN = (str(Path(__file__).resolve().parents[1]) + os.sep, str(Path(torch.__file__).parent) + os.sep)
