"""Tensors that variables of running frames are bound to, and which of the variables this pass of a loop has bound."""

from __future__ import annotations

import dis
import sys
import types

import torch

from torchvet.probes.base.callers import of_program
from torchvet.probes.objects.containers import tensors_in
from torchvet.probes.objects.variables import frame_locals


def bound_tensors(depth: int = 2) -> list[tuple[str, torch.Tensor, types.FrameType]]:
    """Tensors that plain variables of the running user code are bound to (tuples included), innermost frames first."""
    found: list[tuple[str, torch.Tensor, types.FrameType]] = []
    for frame in of_program(sys._getframe(depth)):
        for name, value in (frame_locals(frame) or {}).items():
            found.extend((name, t, frame) for t in tensors_in(value, 3))
    return found


def bound_above(frame: types.FrameType) -> set[str]:
    """The variables that a frame's code binds before the call that it is at, in the order of the text, and nowhere
    else: they hold what this pass has made. One that is bound below holds what the pass before has left."""
    last: dict[str, int] = {}
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.opname.startswith("STORE_"):
            # Some instructions bind two.
            bound = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
            # The last store in the text wins: a name bound above and below the call holds what the pass
            # before has left.
            last.update((str(name), instruction.offset) for name in bound)
    return {name for name, offset in last.items() if offset < frame.f_lasti}
