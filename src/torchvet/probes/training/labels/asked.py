"""The function of `torch.nn.functional` that asks for an operator which is heard below autograd."""

from __future__ import annotations

import sys
from typing import Any

_FRAMES = 6


def asking(*functions: str) -> tuple[str, dict[str, Any]] | None:
    """The nearest such function with one of these names, and what its names stand for: `input`, `target`."""
    frame: Any = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is None:
            break
        if frame.f_code.co_name in functions and frame.f_globals.get("__name__") == "torch.nn.functional":
            return frame.f_code.co_name, frame.f_locals
        frame = frame.f_back
    return None
