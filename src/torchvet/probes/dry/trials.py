"""Steps of the program with one thing changed: checkpointed blocks, another batch size, a fused optimizer.

Each is measured in the program's own process, after its own steps. What breaks in one ends the run, not the report.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import torch

from torchvet.probes.dry import blocks
from torchvet.recording.records.base import Record
from torchvet.recording.records.dry import DryBatch, DryCheckpoint, DrySearch, DrySize, DryUpdate
from torchvet.simulate.dry import limits
from torchvet.simulate.dry.batches import batches

if TYPE_CHECKING:
    from torchvet.probes.dry.observer import DryObserver

_TRIES, _CLOSE = 7, 25
"""Batch sizes that are tried to find the largest that fits; a twenty-fifth is close enough."""
_LESS = 0.04
"""By how much less the next is where one did not fit; twice as much each time."""
# Whose `state` may be cleared: the next step makes it again. LBFGS and others would fail or restart.
_LAZY = ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "SGD", "Adadelta", "Adafactor")
"""Optimizers that make their state in the first step that finds none."""
_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")


class Trial:
    """One changed step. A step that began before the change does not count, nor does one whose rows are others."""

    what = ""
    over = False
    """Whether it is over without a word."""
    _held = 0

    def __init__(self, rows: list[int], own: int) -> None:
        self._rows = rows
        self._own = own
        self.wanted = own
        self.bounded = False
        # The first step may have begun before the change, and the second may find what the first left bound.
        self.steps_left = 3
        self.room = 0
        """Bytes that the card has for the program. A bounded step that begins with more held by the one before shows
        nothing."""
        self.settled = False
        """Whether a step of this kind has gone before: what one leaves bound (outputs, and with them what checkpoints
        keep) is part of the next one's peak."""
        self.began, self.began_at = time.process_time(), time.perf_counter()

    def start(self) -> None:
        """Make the change, and begin a step."""
        self.began, self.began_at = time.process_time(), time.perf_counter()
        self.do()
        self.begin(emptied=True)

    def do(self) -> None:
        """Make the change."""

    def undo(self) -> None:
        """Take it back."""
        batches.begin(None)

    def begin(self, emptied: bool = False) -> None:
        """A step begins, the trial's first with what was cached given back."""
        # `bounded`: allocations beyond the card's size fail as they would there. Unbounded trials measure
        # what would be needed.
        limits.reset(self.bounded, emptied)
        self._held = limits.high_of().allocated
        batches.begin(self.wanted if self.wanted != self._own else None)

    def judge(self, operations: int) -> Record | None:
        """What the step took, of so many floating-point operations; None where it was not what was to be tried."""
        # A step whose batch is another (an epoch's last, an evaluation's) measures something else.
        if self._own and sorted(batches.rows_seen()) != sorted(set(map(self._scaled, self._rows))):
            return None
        if self.bounded and self._held > self.room:
            return None
        # One that ran out needs no second step: it does not fit, whatever it leaves.
        if not self.settled and not (self.bounded and limits.high_of().ran_out):
            self.settled = True
            return None
        return self.record(limits.high_of(), operations)

    def _scaled(self, rows: int) -> int:
        # Tensors whose rows are no multiple of the batch are not of the batch, and stay.
        return rows * self.wanted // self._own if rows % self._own == 0 else rows

    def record(self, high: limits.High, operations: int) -> Record:
        """What the step took."""
        raise NotImplementedError

    def failed(self) -> str:
        """What could not be tried."""
        return self.what


class Batch(Trial):
    """Another batch size."""

    def __init__(
        self, rows: list[int], own: int, wanted: int, room: int = 0, anew: list[torch.optim.Optimizer] | None = None
    ) -> None:
        super().__init__(rows, own)
        self.room = room
        self.wanted, self.bounded, self._anew = wanted, anew is not None, anew or []
        self.what = f"a batch of {wanted}"
        self.found: DryBatch | None = None

    def do(self) -> None:
        """As a run begins: without gradients and without state, so that the first step makes both where it finds room.

        Whether a batch fits is decided by what lies where, not by amounts alone.
        """
        for optimizer in self._anew:
            # The gradients' and states' blocks lie between those of activations: a run of this batch
            # would have another layout.
            optimizer.zero_grad(set_to_none=True)
            if type(optimizer).__name__ in _LAZY:
                optimizer.state.clear()

    def record(self, high: limits.High, operations: int) -> DryBatch:
        """What the step took."""
        allocated, reserved = high.allocated, high.reserved
        self.found = DryBatch(
            batch=self.wanted, allocated=allocated, reserved=reserved, bounded=self.bounded, ran_out=high.ran_out
        )
        return self.found


class Own(Trial):
    """The program's own step, after one that took more than the card has: what that one left bound goes."""

    what = "the program's own batch again"

    def judge(self, operations: int) -> None:
        """Nothing to tell: what it takes is known."""
        # One step of the program's own size is all that it takes; nothing is written for it.
        self.over = sorted(batches.rows_seen()) == sorted(set(self._rows))


class Checkpointed(Trial):
    """Every block of a class under `torch.utils.checkpoint`."""

    def __init__(self, rows: list[int], own: int, kind: blocks.Blocks) -> None:
        super().__init__(rows, own)
        self._kind = kind
        self.what = f"{kind.name} checkpointed"

    def do(self) -> None:
        """Put them under it."""
        self._kind.checkpoint()

    def undo(self) -> None:
        """As they were."""
        self._kind.restore()
        super().undo()

    def record(self, high: limits.High, operations: int) -> DryCheckpoint:
        """What the step took."""
        kind, used = self._kind, {"allocated": high.allocated, "reserved": high.reserved, "arithmetic": operations}
        return DryCheckpoint(module=kind.name, first=kind.first, blocks=len(kind.modules), **used)


class Updated(Trial):
    """Optimizers told to update in one kernel."""

    what = "fused optimizers"

    def __init__(self, rows: list[int], own: int, optimizers: list[torch.optim.Optimizer]) -> None:
        super().__init__(rows, own)
        self._optimizers = optimizers
        # Only the options that the group has: older optimizers lack `fused`.
        self._before: list[list[dict[str, Any]]] = [
            [{n: g[n] for n in ("fused", "foreach") if n in g} for g in o.param_groups] for o in optimizers
        ]

    def do(self) -> None:
        """Tell them; their counts of steps go to the device, as fused kernels want them."""
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group.update(fused=True, foreach=False)
            for parameter, state in optimizer.state.items():
                if isinstance(state.get("step"), torch.Tensor):
                    # torch's fused kernels read the count on the device and raise for one on the
                    # CPU.
                    state["step"] = state["step"].to(parameter.device)

    def undo(self) -> None:
        """As they were."""
        for optimizer, before in zip(self._optimizers, self._before, strict=True):
            for group, options in zip(optimizer.param_groups, before, strict=True):
                group.update(options)
            for state in optimizer.state.values():
                if isinstance(state.get("step"), torch.Tensor):
                    state["step"] = state["step"].cpu()
        super().undo()

    def record(self, high: limits.High, operations: int) -> DryUpdate:
        """What the step took."""
        return DryUpdate(setting="fused=True", allocated=high.allocated, reserved=high.reserved)


def all_of(observer: DryObserver, size: DrySize, rows: list[int]) -> Iterator[Trial]:
    """The trials in turn, those first whose results others need. Batch sizes are not varied where none was seen."""
    own = size.batch
    base = Batch(rows, own, own)
    # Steps of this kind have gone before: the program's own.
    base.settled = True
    # The base first: it has the program's own sizes with allocations unbounded, and others compare with it.
    yield base
    for kind in blocks.repeated(observer.known.live_roots()):
        yield Checkpointed(rows, own, kind)
    optimizers = observer.known.live_optimizers()
    if optimizers and all(_may_be_fused(o) for o in optimizers):
        yield Updated(rows, own, optimizers)
    # `DrySearch` says that the largest batch was found: without it the sizes are only those that were tried.
    if (yield from _batches(rows, own, size, base, optimizers)):
        observer.write(DrySearch())


def _may_be_fused(optimizer: torch.optim.Optimizer) -> bool:
    groups = optimizer.param_groups
    # torch refuses fused together with differentiable; capturable has its counts on the device already.
    return type(optimizer).__name__ in _FUSED and not any(
        g.get("fused") or g.get("differentiable") or g.get("capturable") for g in groups
    )


def _batches(
    rows: list[int], own: int, size: DrySize, base: Batch, optimizers: list[torch.optim.Optimizer]
) -> Generator[Trial, None, bool]:
    """Twice the batch, half of it where the batch does not fit, then the largest that does: whether it was found."""
    if not own or base.found is None:
        return False
    room = size.total - size.context
    beside = yield from _beside(rows, own, room, [2 * own, own // 2] if size.ran_out and own > 1 else [2 * own])
    if beside is None:
        return False
    fitting, over = sorted([base.found, *beside], key=lambda b: b.batch), None
    if size.ran_out:
        # The program's own batch did not fit as the program ran; what fits is below it.
        over = base.found
        # Sizes measured without a bound; two points give the line if none fits.
        fitting = [b for b in fitting if b.batch < own and b.reserved <= room] or fitting[:2]
    return (yield from _largest(rows, own, size, fitting, over, optimizers))


def _largest(
    rows: list[int],
    own: int,
    size: DrySize,
    fitting: list[DryBatch],
    over: DryBatch | None,
    optimizers: list[torch.optim.Optimizer],
) -> Generator[Trial, None, bool]:
    """Ever closer to the largest batch that fits, from those that do and one that does not: whether it was found."""
    room, refused = size.total - size.context, 0
    for _ in range(_TRIES):
        wanted = next_batch(fitting, over, room, refused)
        if not wanted:
            return True
        last = Batch(rows, own, wanted, room, anew=optimizers)
        yield last
        if last.found is None:
            return False
        if not last.found.fits(size):
            over, refused = last.found, refused + 1
            # What the failed step left bound (its outputs, half a graph) would be in the next trial's
            # way.
            yield Own(rows, own)
        else:
            fitting.append(last.found)
            refused = 0
    return not next_batch(fitting, over, room, refused)


def _beside(rows: list[int], own: int, room: int, wanted: list[int]) -> Generator[Trial, None, list[DryBatch] | None]:
    """What other batches take, whether they fit or not; None where one could not be tried."""
    found = []
    for batch in wanted:
        trial = Batch(rows, own, batch)
        yield trial
        if trial.found is None:
            return None
        found.append(trial.found)
        if trial.found.reserved > room:
            yield Own(rows, own)
    return found


def next_batch(fitting: list[DryBatch], over: DryBatch | None, room: int, refused: int) -> int:
    """The batch size to try next, after `refused` in a row that did not fit; 0 where it would be no news.

    A peak is the greatest of several straight lines (backward's, the update's), so the line through two sizes that fit
    promises too much, and the line to one that does not fit promises too little. Where memory lies in pieces neither
    tells: then ever smaller ones are tried, and at last the middle.
    """
    # The largest that fits, and the nearest point beyond or below it, give the slope of memory over the batch.
    low = fitting[-1]
    high = over or (fitting[-2] if len(fitting) > 1 else low)
    slope = (high.allocated - low.allocated) / (high.batch - low.batch) if high.batch != low.batch else 0.0
    # Memory that does not grow with the batch tells no size.
    if slope <= 0:
        return 0
    wanted = int(low.batch + (room - low.allocated) / slope)
    # Within a twenty-fifth of what is known to fit it would be no news.
    if over is None:
        return wanted if wanted > low.batch + low.batch // _CLOSE else 0
    if over.batch > 2 * low.batch:
        # What grows faster than the batch (every row with every other): the line to what is far too much says little.
        wanted = max(wanted if wanted < over.batch * (1 - _LESS) else 0, math.isqrt(low.batch * over.batch))
    elif refused:
        wanted = min(wanted, int(over.batch * (1 - _LESS * 2 ** (refused - 1))))
    elif wanted > over.batch * (1 - _LESS):
        wanted = (low.batch + over.batch) // 2
    if wanted <= low.batch:
        wanted = (low.batch + over.batch) // 2
    return wanted if low.batch < wanted < over.batch and over.batch - low.batch > over.batch // _CLOSE else 0


__all__ = ["Batch", "Checkpointed", "Trial", "Updated", "all_of", "next_batch"]
