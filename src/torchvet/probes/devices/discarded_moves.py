"""Watches for statements that move or convert a tensor and throw the result away."""

from __future__ import annotations

import ast
import dis
import itertools
import os
import sys
import weakref
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import Any, Literal

import torch

from torchvet.probes.base.kit import EVERY_STEP, Host, Place, Record, StepKind, Watcher, frames, outward
from torchvet.probes.crash import positions, statements
from torchvet.recording.records.device import DiscardedMove
from torchvet.source import timing

_PLUMBING = (os.path.join("torch", "overrides.py"), os.path.join("torch", "utils", "_device.py"))
"""Files of torch's that pass on what the program calls."""


_MOST = 256
"""Tensors of one step that are followed."""
Kind = Literal["to device", "to host", "dtype"]
_Taken = tuple[int, str, str]
_EARLY = 4096
"""Copies that are looked at before the first step is over."""


class DiscardedMoves(Watcher):
    """Moves and conversions whose result is thrown away."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._sites: dict[Place, DiscardedMove | None] = {}
        self._in_step: list[tuple[_Taken, DiscardedMove]] = []
        """Of this step: the tensor that was moved, and the statement that dropped what came of it."""
        self._taken: set[_Taken] = set()
        """Of this step: tensors whose moves were kept."""
        self._sources: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        """By identity, with a number of their own: what is gone may have lent its identity on."""
        self._numbers = itertools.count()
        self._sampled = self._early = 0

    def install(self) -> None:
        """Hear what is moved or converted, on a simulated device in the first step too: it may be the last."""
        self.host.hear([torch.ops.aten._to_copy.default], self._copied)
        if self.host.options.simulated_gpu is not None:
            from torchvet.simulate.operations import transfers

            transfers.brought.append(self._copied_early)

    def _copied_early(self, source: torch.Tensor, out: torch.Tensor) -> None:
        """Before any step is over; copies made by the thousand while a program sets up are not looked at for long."""
        self._early += 1
        if not self.host.active or self._early > _EARLY or self.host.tick:
            # Removing itself from within a call is safe: the simulated device goes through a copy of the
            # list.
            self._stop_early()
        elif not self.host.sampling:
            with self.host.looking("moves thrown away"):
                self._copied(None, (source,), None, out)

    def _stop_early(self) -> None:
        if self.host.options.simulated_gpu is None:
            return  # nothing is imported at the end of a program that has no use for it
        from torchvet.simulate.operations import transfers

        if self._copied_early in transfers.brought:
            transfers.brought.remove(self._copied_early)

    def finish(self, how: str, error: BaseException | None) -> None:
        """Nobody listens any more."""
        self._stop_early()

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended."""
        self._sampled += self.host.sampling
        for taken, record in self._in_step:
            # The same tensor was moved again in this step, and kept: so the first move was paid for in
            # vain.
            record.again += taken in self._taken
        for record in {id(r): r for _, r in self._in_step}.values():
            record.steps += 1
        self._in_step.clear()
        self._taken.clear()
        self._sources.clear()

    def totals(self, tick: int) -> Iterable[Record]:
        """Each statement, by its line."""
        positions.forget()
        for record in self._sites.values():
            if record is not None and record.steps:
                record.sampled = self._sampled
                yield record

    def _copied(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        frame = _calling()
        # By the bytecode: the next instruction pops the result. The text need not be parsed for each copy.
        if frame is None or not _drops_result(frame.f_code, frame.f_lasti):
            taken = self._moved(args[0], out)
            if taken is not None:
                self._taken.add(taken)
            return
        place = frames.place_of(frame)
        if place not in self._sites:
            self._sites[place] = _described(frame, place, args[0], out)
        record = self._sites[place]
        if record is not None:
            statements.remember(args[0], record.text, place)
            record.calls += 1
            record.bytes += out.numel() * out.element_size()
            taken = self._moved(args[0], out)
            if taken is not None:
                self._in_step.append((taken, record))

    def _moved(self, source: torch.Tensor, out: torch.Tensor) -> _Taken | None:
        """A tensor's number and what it was moved to; None where too many were."""
        known = self._sources.get(id(source))
        if known is None or known[0]() is not source:
            if len(self._sources) >= _MOST:
                return None
            known = self._sources[id(source)] = weakref.ref(source), next(self._numbers)
        return known[1], str(out.device), str(out.dtype)


def _calling() -> FrameType | None:
    """The program's frame, where it called the operator itself: what torch or a package does within is theirs."""
    for frame in outward(sys._getframe(1)):
        file = frame.f_code.co_filename
        if frames.owner(file) == frames.USER:
            return frame
        if frames.owner(file) != frames.OWN and not file.endswith(_PLUMBING):
            return None
    return None


_dropping: dict[tuple[int, int], tuple[CodeType, bool]] = {}


def _drops_result(code: CodeType, at: int) -> bool:
    """Whether what the instruction gives is popped off by the next."""
    known = _dropping.get((id(code), at))
    if known is None or known[0] is not code:
        following = iter(dis.get_instructions(code))
        # `any` stops at the instruction, so that the next of the same iterator is the one after it.
        drops = any(i.offset == at for i in following) and next(following).opname == "POP_TOP"
        known = _dropping[id(code), at] = code, drops
    return known[1]


def _described(frame: FrameType, place: Place, source: torch.Tensor, out: torch.Tensor) -> DiscardedMove | None:
    """The statement, if it is a method of a named tensor: what has no name may be made for this alone."""
    node = positions.evaluated(frame.f_code, place.line, frame.f_lasti)
    call = node.value if isinstance(node, ast.Expr) else node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    # `torch.rand(3).cuda()` as a statement warms the device up: nothing of it was meant to be kept.
    named = isinstance(call.func.value, (ast.Name, ast.Attribute, ast.Subscript))
    if not named or call.func.attr not in statements.MOVES:
        return None
    moved = source.device != out.device
    parsed = positions.tree(frame.f_code.co_filename)
    timed = parsed is not None and timing.is_timed(parsed, call)
    kind: Kind = "dtype" if not moved else "to host" if out.device.type == "cpu" else "to device"
    before, after = (source.device, out.device) if moved else (source.dtype, out.dtype)
    text, subject = ast.unparse(call), ast.unparse(call.func.value)
    return DiscardedMove(
        place=place, text=text, subject=subject, kind=kind, before=str(before), after=str(after), timed=timed
    )
