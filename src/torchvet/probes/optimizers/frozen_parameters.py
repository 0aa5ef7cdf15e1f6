"""Parameters that required a gradient when their optimizer was made, and none when it steps; and who did that."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch

from torchvet.probes.base.callers import user_lines
from torchvet.probes.base.kit import Host, Optimizer, Place, frames
from torchvet.probes.internals.compiled_regions import REGIONS
from torchvet.probes.internals.patching import replace

_CALLS = 4
"""Lines that are kept of the way to the one that wrote the flag."""
_LISTENED = 3
"""Looks over which the line that switches gradients off is listened for."""


@dataclass
class Frozen:
    """Of one optimizer's parameters: those frozen at every look since the first that found them so."""

    since: dict[int, int] = field(default_factory=dict)
    """By identity: the optimizer's steps at that first look."""

    def look(self, optimizer: Optimizer, wanted: frozenset[int], steps: int) -> list[torch.Tensor]:
        """Those that are frozen now, of the ones that required a gradient once."""
        found = [p for g in optimizer.param_groups for p in g["params"] if not p.requires_grad and id(p) in wanted]
        self.since = {id(p): self.since.get(id(p), steps) for p in found}
        return found


class FreezingLines:
    """Listens for lines that switch gradients off, for a few steps after frozen parameters were found.

    Nobody can be asked afterwards: a tensor does not tell who wrote its flag. Only what happens again is heard, and
    that is the case that matters: whoever freezes a part of a model on purpose does so once.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._left = _LISTENED
        self._undo: ExitStack | None = None
        self._wanted: set[int] = set()
        self._lines: dict[tuple[Place, ...], set[int]] = {}
        """By the line and those that led to it: the steps in which it did."""

    def listen(self, parameters: set[int]) -> None:
        """Listen for these parameters until the looks that this is for are over."""
        self._wanted = parameters
        if self._left == 0 or not parameters or REGIONS.ran:
            self.end()
            return
        self._left -= 1
        if self._undo is None:
            self._undo = ExitStack()
            replace(self._undo, torch.Tensor, "requires_grad_", _method(self))
            # The flag of a plain assignment is a descriptor of the C base class: a property of the same meaning hides
            # it, on parameters alone, and goes again after a few steps.
            replace(self._undo, torch.nn.Parameter, "requires_grad", _flag(self))

    def end(self) -> None:
        """Leave torch as it was."""
        if self._undo is not None:
            self._undo.close()
            self._undo = None

    def lines(self) -> tuple[Place, ...]:
        """The line that did it in most of the steps that were heard, then those of the calls that led there: a library
        may have one function that writes the flag for all."""
        return max(self._lines, key=lambda lines: len(self._lines[lines]), default=())

    def switched(self, tensor: Any, to: bool) -> None:
        """The flag of a tensor is written."""
        if not to and id(tensor) in self._wanted and self._host.active:
            with self._host.looking("lines that freeze parameters"):
                lines = user_lines(sys._getframe(1), _CALLS) or [p for p in [frames.user_place(2)] if p is not None]
                if lines:
                    self._lines.setdefault(tuple(lines), set()).add(self._host.step)


def _method(lines: FreezingLines) -> Any:
    original = torch.Tensor.requires_grad_

    def requires_grad_(self: torch.Tensor, requires_grad: bool = True) -> torch.Tensor:
        lines.switched(self, requires_grad)
        return original(self, requires_grad)

    return requires_grad_


def _flag(lines: FreezingLines) -> Any:
    plain: Any = torch.Tensor.requires_grad

    def write(self: torch.Tensor, to: bool) -> None:
        lines.switched(self, to)
        plain.__set__(self, to)

    return property(lambda self: plain.__get__(self), write)
