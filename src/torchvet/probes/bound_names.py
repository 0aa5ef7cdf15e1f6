"""Tensors that variables of running frames are bound to, and which of the variables this pass of a loop has bound."""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterator

import torch

from torchvet.probes import frames
from torchvet.probes.containers import tensors_in
from torchvet.probes.variables import frame_locals


def bound_tensors(depth: int = 2) -> list[tuple[str, torch.Tensor, types.FrameType]]:
    """Tensors that plain variables of the running user code are bound to (tuples included), innermost frames first."""
    found: list[tuple[str, torch.Tensor, types.FrameType]] = []
    frame: types.FrameType | None = sys._getframe(depth)
    while frame is not None:
        if frames.owner(frame.f_code.co_filename) in (frames.USER, frames.INSTALLED):
            for name, value in (frame_locals(frame) or {}).items():
                found.extend((name, t, frame) for t in tensors_in(value, 3))
        frame = frame.f_back
    return found


def bound_above(frame: types.FrameType) -> set[str]:
    """The variables that a frame's code binds on lines before the one that it is at, and on no other: they hold what
    this pass has made. One that is bound below holds what the pass before has left."""
    last: dict[str, int] = {}
    for name, line in _stores(frame.f_code):
        last[name] = max(line, last.get(name, 0))
    return {name for name, line in last.items() if line < frame.f_lineno}


def _stores(code: types.CodeType) -> Iterator[tuple[str, int]]:
    """Each variable that code binds, with the line. Some instructions bind two."""
    lines = {offset: line for first, end, line in code.co_lines() for offset in range(first, end, 2)}
    for instruction in dis.get_instructions(code):
        if instruction.opname.startswith("STORE_"):
            names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
            yield from ((str(name), lines.get(instruction.offset) or 0) for name in names)
