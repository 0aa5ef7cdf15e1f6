"""Watches what is added to in half precision, step after step: does it still move?"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Place, Record, StepKind, Watcher, bare_name, overloads
from torchvet.probes.numerics import half
from torchvet.recording.records.numeric import HalfSum

_IN_PLACE = overloads("add_.Tensor sub_.Tensor lerp_.Scalar lerp_.Tensor")
_FRESH = overloads("add.Tensor sub.Tensor")
_LISTS = overloads("_foreach_add_.List _foreach_sub_.List _foreach_lerp_.Scalar _foreach_lerp_.List")
_MOST_OF_LIST = 4
_MOST = 8
"""Accumulators that are followed; what is added to once a step and then dropped is none."""
_MOST_CANDIDATES = 512
_OFTEN = 16
"""Steps at first after each of which is looked; later after every sixteenth part of those passed."""
_STILL = 4
"""Steps without a change from which on an element stands still."""


_JUDGED = 16
"""Looks between two judgements: what is added to may be set to zero at the end of an epoch."""


class _Sum:
    """One tensor that a line adds to. `addend` is of the last addition seen, an element a sampled one."""

    def __init__(self, place: Place, operator: str, tensor: torch.Tensor, tick: int) -> None:
        self.place = place
        self.operator = operator
        self.shape = tuple(tensor.shape)
        self.tick = tick
        self.calls = 0
        self.sample = half.Sample(tensor)
        self.addend: torch.Tensor | None = None
        self.values: torch.Tensor | None = None
        self.changed: torch.Tensor | None = None
        """The boundary at which each sampled element was last seen to have changed."""
        self.looks = 0
        self.moved = 0
        self.grows = True
        self.worst: HalfSum | None = None

    def moved_on(self, operator: str, tensor: torch.Tensor) -> _Sum:
        """The same sum in another tensor, with what is known of it: `total = total + x` makes a new one each time."""
        # What was learnt goes along by element: the positions are the same, since the shapes are.
        new = _Sum(self.place, operator, tensor, 0)
        new.calls, new.looks, new.moved, new.grows = self.calls, self.looks, self.moved, self.grows
        new.values, new.changed, new.worst = self.values, self.changed, self.worst
        return new

    def look(self, tick: int) -> None:
        """Compare the sampled elements with those of the look before."""
        values = self.sample.read()
        if values is None or self.addend is None:
            return
        self.looks += 1
        if self.values is None or self.changed is None:
            self.values, self.changed = values, torch.full(values.shape, tick, device="cpu")
            return
        # A sum that only grows comes to stand still; a moving average may do so on purpose.
        self.grows = self.grows and bool((values.abs() >= self.values.abs()).all())
        same = (values == self.values).cpu()
        self.moved = self.moved if bool(same.all()) else tick
        # Not in place: the tensor may have been made under the inference_mode of an evaluation.
        self.changed = torch.where(same, self.changed, tick)
        self.values = values
        if self.looks % _JUDGED == 0:
            self.judge(tick)

    def judge(self, tick: int) -> None:
        """Which elements stand still because of what is added to them, and which move in jumps? The worst is kept."""
        if self.values is None or self.changed is None or self.addend is None:
            return
        apart = half.spacing(self.values, self.sample.dtype).cpu()
        addend = self.addend.abs()
        given = addend > 0
        # Rounding to nearest drops what is at most half the distance to the next number.
        # Both: by arithmetic it cannot move, and it was seen not to.
        stalled = given & (addend <= apart / 2) & (tick - self.changed >= _STILL)
        # What is added is less than two steps of the number: it moves in jumps.
        coarse = given & (addend < 2 * apart)
        counts = int(stalled.sum()), int(coarse.sum())
        # The worst of the run is kept, because an epoch's end may set the sum to zero.
        if self.worst is not None and counts < (self.worst.stalled, self.worst.coarse):
            return
        one = int((stalled if counts[0] else coarse if counts[1] else given).int().argmax())
        dtype = half.NAMES[self.sample.dtype]
        worst = HalfSum(place=self.place, dtype=dtype, shape=self.shape, operator=self.operator, grows=self.grows)
        worst.calls, worst.looks, worst.moved, worst.tick = self.calls, self.looks, self.moved, tick
        worst.elements, (worst.stalled, worst.coarse) = int(given.sum()), counts
        worst.value, worst.addend, worst.spacing = (float(t[one]) for t in (self.values, self.addend, apart))
        self.worst = worst


class HalfSums(Watcher):
    """Sums and moving averages in half precision."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._candidates: dict[int, _Sum] = {}
        self._followed: list[_Sum] = []
        # Until something was added to.
        self.ignored = frozenset(["boundary"])
        self._allowance = half.Allowance(0.1, 0.002)

    def install(self) -> None:
        """Hear additions in sampled steps."""
        self.host.hear(_IN_PLACE, self._in_place)
        self.host.hear(_FRESH, self._fresh)
        self.host.hear(_LISTS, self._lists)

    @property
    def _stepping(self) -> bool:
        """Whether an optimizer is: its own sums are looked at with the optimizer."""
        return self.host.ledger.phase == "optimizer"

    def _in_place(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        target = args[0]
        if target.dtype in half.HALF and not self._stepping and not half.in_backward():
            self._added(func, target, _key(target), args[1:], kwargs)

    def _lists(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if not args[0] or args[0][0].dtype not in half.HALF or self._stepping or half.in_backward():
            return
        # An average of weights has hundreds of tensors: a few stand for them.
        for index, target in enumerate(args[0][:_MOST_OF_LIST]):
            self._added(func, target, _key(target), (args[1][index], *args[2:]), kwargs)

    def _fresh(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        """`total = total + x`: what is added to is the result of the same line in an earlier step."""
        if out.dtype not in half.HALF or self._stepping or half.in_backward():
            return
        before = args[0] if isinstance(args[0], torch.Tensor) else None
        # Broadcasting makes another tensor of it, and no sum that goes on.
        key = _key(before) if before is not None and before.shape == out.shape else 0
        self._added(func, out, key, args[1:], kwargs)

    def _added(self, func: Any, target: torch.Tensor, before: int, rest: tuple[Any, ...], kwargs: Any) -> None:
        place = self.host.line()
        if place is None or not target.numel() or target.layout is not torch.strided:
            return
        found = self._sum_of(target, before, place, bare_name(func))
        if found is None:
            return
        found.calls += 1
        found.tick = self.host.tick
        self._candidates[_key(target)] = found
        self.heed()
        found.addend = _addend(found.sample, func, target, rest, kwargs or {}).cpu()
        # The second time shows that it lasts.
        if found.calls > 1 and found not in self._followed and len(self._followed) < _MOST:
            self._followed.append(found)

    def _sum_of(self, target: torch.Tensor, before: int, place: Place, operator: str) -> _Sum | None:
        """The sum that goes on in `target`, or a new one; None where this step has counted it or there are too many."""
        known = self._candidates.get(before)
        # Another line that adds to it has an order of its own.
        if known is None or known.sample.storage() is None or known.place != place:
            return _Sum(place, operator, target, 0) if len(self._candidates) < _MOST_CANDIDATES else None
        # Once a step: several additions of one step (micro-batches) would look like steps.
        if known.tick == self.host.tick:
            return None
        if _key(target) == before:
            return known
        found = known.moved_on(operator, target)
        self._followed = [found if one is known else one for one in self._followed]
        return found

    def boundary(self, tick: int, kind: StepKind) -> None:
        """Look whether what is followed has moved, while there is time for it."""
        if self._candidates and tick % 16 == 0:
            self._candidates = {k: c for k, c in self._candidates.items() if c.sample.storage() is not None}
        if self._followed and tick % max(1, tick // _OFTEN) == 0 and self._allowance.left():
            began = time.thread_time()
            for one in self._followed:
                one.look(tick)
            self._allowance.spend(began)

    def totals(self, tick: int) -> Iterable[Record]:
        """What each has come to."""
        for one in self._followed:
            one.look(tick)
            one.judge(tick)
        return [one.worst for one in self._followed if one.worst is not None]


def _addend(sample: half.Sample, func: Any, target: torch.Tensor, rest: tuple[Any, ...], kwargs: Any) -> torch.Tensor:
    """What was added to each sampled element, as float64."""
    other = sample.of(rest[0], target)
    if "lerp" in str(func):
        now = target.detach()[sample.at].double() if sample.at else target.detach().reshape(1).double()
        return (other - now) * sample.of(rest[1], target)
    factor = float(kwargs.get("alpha", 1))
    return other * (-factor if "sub" in str(func) else factor)


def _key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
