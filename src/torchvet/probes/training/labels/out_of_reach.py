"""Watches regressions whose prediction is bounded by an activation: do the targets lie in its range?"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import (
    EVERY_STEP,
    ByStorage,
    Host,
    Place,
    Record,
    SiteWatcher,
    StepKind,
    bare_name,
    graphs,
    overloads,
)
from torchvet.probes.base.ledger import place_of_line, storage_key
from torchvet.probes.internals import private
from torchvet.probes.internals.graph_teardown import nodes_below
from torchvet.probes.internals.saved import saved_tensors
from torchvet.probes.numerics import half
from torchvet.probes.training.labels.pulls import pulls
from torchvet.probes.training.labels.ranges import Bound, Bounded, Reach, bound_of, measured
from torchvet.recording.records.labels import TargetsOutside

_LOSSES = overloads("mse_loss smooth_l1_loss huber_loss")
_KEEPING = overloads("add.Tensor sqrt clamp_min")
"""What losses written by hand do to each square alike. A mask is none of these: what it leaves out is not known."""
_REDUCING = overloads("mean sum mean.dim sum.dim_IntList")
_NORMS = overloads("linalg_vector_norm norm.Scalar norm.ScalarOpt_dim")
_STEPS = 16
"""Steps in which a loss is looked at: on a GPU each look waits for the device."""
_MOST_NODES = 8192
_MOST_WAITING = 16
_UNREDUCED = 0
"""torch's number for `reduction="none"`."""


class _Look(NamedTuple):
    """What one loss of the step under way was given: it holds nothing of the program's."""

    node: int
    kind: str
    bound: Bound
    place: Place
    module: str
    loss: Place
    reach: Reach


class _Difference(NamedTuple):
    """Predictions less targets, or with `squared` their squares: how many, and as which version of their storage."""

    look: _Look
    squared: bool
    numel: int
    version: int


class TargetsOutOfReach(SiteWatcher[tuple[Place, Place, str], TargetsOutside]):
    """Targets of regressions that predictions cannot reach."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._differences: ByStorage[_Difference] = ByStorage()
        self._waiting: dict[tuple[int, str], list[_Look]] = {}
        """Losses of this step, until a backward pass says that they train."""
        self._allowance = half.Allowance(0.05, 0.002)

    def install(self) -> None:
        """In sampled steps, hear losses of regressions, and what those that are written by hand are made of."""
        self.host.hear(_LOSSES, self._lost)
        self.host.hear(overloads("sub.Tensor"), self._subtracted)
        self.host.hear(overloads("pow.Tensor_Scalar"), self._powered)
        self.host.hear(overloads("abs"), self._distances)
        self.host.hear(overloads("mul.Tensor div.Tensor"), self._scaled)
        self.host.hear(_KEEPING, self._kept)
        self.host.hear(_REDUCING, self._reduced)
        self.host.hear(_NORMS, self._normed)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended."""
        self._differences.clear()
        self._waiting.clear()

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """Which of the losses train?"""
        if is_grad or not self._waiting:
            return
        began = time.thread_time()
        pulled: Counter[tuple[int, str]] = Counter()
        pushed = set()
        for node, kind, grows in pulls(graphs.roots_of(tensors), _MOST_NODES):
            for below in nodes_below(node):
                bounded = bound_of(below)
                if bounded is not None and grows:
                    pulled[bounded.node, kind] += 1
                elif bounded is not None:
                    pushed.add((bounded.node, kind))
        for key, times in pulled.items():
            looks = self._waiting.pop(key, []) if key not in pushed else []
            # A prediction that is compared with several targets: is it pulled to all of them?
            if len({look.reach for look in looks}) in (1, times):
                self._add(looks[-1])
        self._allowance.spend(began)

    def _lost(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        look = self._look(args[0], args[1], "loss")
        if look is None:
            return
        reduction = args[2] if len(args) > 2 else (kwargs or {}).get("reduction")
        if reduction == _UNREDUCED:
            self._put(out, look, squared=True)
        else:
            self._wait(look)

    def _subtracted(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        # `sub(alpha=…)` is no difference.
        look = self._look(args[0], args[1], "sub") if not kwargs else None
        if look is not None:
            self._put(out, look, squared=False)
        else:
            self._kept(func, args, kwargs, out)

    def _powered(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        known = self._known(args[0])
        if known is not None and (known.squared or args[1] % 2 == 0):
            self._put(out, known.look, squared=True)

    def _distances(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        known = self._known(args[0])
        if known is not None:
            self._put(out, known.look, squared=True)

    def _scaled(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        one, other = self._known(args[0]), self._known(args[1])
        known = one or other
        if known is None:
            return
        if one is not None and other is not None:
            self._put(out, known.look, squared=one.look is other.look)
        # Divided by a tensor it is a likelihood; multiplied by one it may be masked.
        elif _is_number(args[1] if one is not None else args[0]) or bare_name(func) == "div":
            self._put(out, known.look, known.squared)

    def _kept(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        known = next((found for one in args if (found := self._known(one)) is not None), None)
        if known is not None and known.squared and out.numel() == known.numel:
            self._put(out, known.look, squared=True)

    def _reduced(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        known = self._known(args[0])
        if known is not None and known.squared:
            self._wait(known.look)

    def _normed(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        known = self._known(args[0])
        if known is not None:
            self._wait(known.look)

    def _wait(self, look: _Look) -> None:
        if len(self._waiting) < _MOST_WAITING:
            self._waiting.setdefault((look.node, look.kind), []).append(look)

    def _put(self, out: torch.Tensor, look: _Look, squared: bool) -> None:
        self._differences.put(out, _Difference(look, squared, out.numel(), out._version))

    def _known(self, tensor: Any) -> _Difference | None:
        found = self._differences.get(tensor) if self._differences else None
        # What was changed in place meanwhile, or is only a part, is something else.
        same = found is not None and tensor.numel() == found.numel and tensor._version == found.version
        return found if same else None

    def _look(self, one: Any, other: Any, kind: str) -> _Look | None:
        """A prediction that is bounded, and targets without a graph, in either order."""
        if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
            return None
        given, targets = (one, other) if one.grad_fn is not None else (other, one)
        # Cheapest first: subtractions are frequent.
        if given.grad_fn is None or targets.requires_grad or not targets.is_floating_point() or half.in_backward():
            return None
        # What stands for others within transforms of `torch.func` has no numbers of its own.
        if not self._allowance.left() or any(map(private.is_functorch_wrapped, (given, targets))):
            return None
        began = time.thread_time()
        bounded = bound_of(given.grad_fn)
        look = self._of_bounded(given, targets, bounded, kind) if bounded is not None else None
        self._allowance.spend(began)
        return look

    def _of_bounded(self, given: torch.Tensor, targets: torch.Tensor, by: Bounded, kind: str) -> _Look | None:
        loss = self.host.line()
        if loss is None:
            return None
        place, module = self._made_at(given, by)
        seen = self.sites.get((place or loss, loss, by.bound.operator))
        if seen is not None and seen.steps >= _STEPS:
            return None
        reach = measured(targets, by.bound)
        return _Look(by.node, kind, by.bound, place or loss, module, loss, reach) if reach is not None else None

    def _made_at(self, given: torch.Tensor, by: Bounded) -> tuple[Place | None, str]:
        """The line of the operator that bounds, and its module if it has one."""
        live, births = self.host.ledger.live, []
        # The operator's own result, where its node has kept it: what is given may be a copy of that.
        for tensor in (given, *saved_tensors(by.at)):
            key = storage_key(tensor)
            birth = live.get(key) if key is not None else None
            if birth is not None:
                births.append(birth)
        own = next((b for b in births if bare_name(b.op).strip("_").startswith(by.bound.operator)), None)
        # Changed in place, it was born before; its line is often the same.
        birth = own or next(iter(births), None)
        place = place_of_line(birth.user or birth.inner) if birth is not None else None
        return place, (own.module or "") if own is not None else ""

    def _add(self, look: _Look) -> None:
        bound, reach = look.bound, look.reach
        key = look.place, look.loss, bound.operator
        record = self.sites.get(key)
        if record is None:
            record = self.sites[key] = TargetsOutside(
                place=look.place,
                loss=look.loss,
                operator=bound.operator,
                module=look.module,
                low=bound.low if math.isfinite(bound.low) else None,
                high=bound.high if math.isfinite(bound.high) else None,
            )
        first = record.last != self.host.tick
        record.last = self.host.tick
        record.steps += first
        record.targets += reach.targets
        record.below += reach.below
        record.above += reach.above
        record.floor += reach.floor
        record.spread += reach.spread
        if reach.values is not None:
            record.stray += first
            old = record.values or reach.values
            record.values = min(old[0], reach.values[0]), max(old[1], reach.values[1])

    def totals(self, tick: int) -> Iterable[Record]:
        """Losses whose targets lay outside."""
        return [record for record in self.sites.values() if record.values is not None]


def _is_number(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or value.numel() == 1
