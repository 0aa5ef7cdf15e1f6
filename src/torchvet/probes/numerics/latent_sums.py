"""Samples the sums of KL divergences over latents: what a latent's is on average, from look to look."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchvet.probes.base.kit import EVERY_STEP, ByStorage, Host, Place, SiteWatcher, overloads
from torchvet.probes.internals.finite import numeric
from torchvet.probes.internals.simulated import numbers
from torchvet.probes.numerics.half import in_backward
from torchvet.recording.records.numeric import LatentSum

_BEGINS = overloads("exp exp_ log")
_SQUARES = overloads("pow.Tensor_Scalar mul.Tensor")
_GOES_ON = overloads(
    "add.Tensor add_.Tensor sub.Tensor sub_.Tensor rsub.Scalar rsub.Tensor mul.Tensor mul_.Tensor neg neg_ div.Tensor "
    "pow.Tensor_Scalar"
)
_SUMS = overloads("sum sum.dim_IntList")
_WHAT = "sums over latents"
_SQUARE, _VARIANCE = 1, 2
"""What a divergence is made of: bits."""
_MOST = 8
"""Sums of a step that are read."""
_LOOKS = 64
"""Looks that are kept, the latest."""
_LATE, _APART, _WINDOWS = 100, 4, 6
"""The step of the first late window, how many times as many steps later the next is, and how many there are."""
_ALIVE = 0.2
"""A sum whose numbers are larger on average, late, is of latents that say something: no more windows."""


class LatentSums(SiteWatcher[Place, LatentSum]):
    """KL divergences of latents."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._known: ByStorage[tuple[tuple[int, ...], int]] = ByStorage()
        """What is made of squares, and of exponentials or logarithms: its shape, and of which of them."""
        self._asked = 0
        """Late windows so far."""
        self._waiting: list[tuple[Place, int, torch.Tensor]] = []
        """Sums of the step under way: where, of how many numbers, and their total."""

    def install(self) -> None:
        """Hear, in sampled steps, what such a divergence is made of."""
        self.host.hear(_BEGINS, self._begun)
        self.host.hear(_GOES_ON, self._gone_on)
        self.host.hear(_SQUARES, self._squared)
        self.host.hear(_SUMS, self._summed)

    def boundary(self, tick: int, kind: Any) -> None:
        """A step ended: what it has summed is read, all at once."""
        waiting, self._waiting = self._waiting, []
        self._known.clear()
        if waiting:
            with self.host.looking(_WHAT):
                self._read(waiting, tick)

    def _begun(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        self._note(out, _VARIANCE)

    def _squared(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if args[1] is args[0] or (isinstance(args[1], (int, float)) and args[1] == 2 and func is _SQUARES[0]):
            self._note(out, _SQUARE)

    def _note(self, out: torch.Tensor, kind: int) -> None:
        # Without a graph it is no part of a loss.
        if torch.is_grad_enabled() and out.dim() > 1 and out.is_floating_point() and not in_backward():
            self._known.put(out, (tuple(out.shape), kind))

    def _gone_on(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        found = [known[1] for known in map(self._known.get, args[:2]) if known is not None]
        if found and not in_backward():
            mine = self._known.get(out)
            self._known.put(out, (tuple(out.shape), found[0] | found[-1] | (mine[1] if mine is not None else 0)))

    def _summed(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        given = args[0]
        # A view of one row is another sum.
        if self._known.get(given) != (tuple(given.shape), _SQUARE | _VARIANCE) or len(self._waiting) >= _MOST:
            return
        place, total = self.host.line(), numbers(out)
        if place is not None and torch.is_grad_enabled() and numeric(total) and not in_backward():
            self._waiting.append((place, given.numel(), total.detach().double().sum()))

    def _read(self, waiting: list[tuple[Place, int, torch.Tensor]], tick: int) -> None:
        for place, count, total in waiting:
            mean = float(total) / count
            # JSON has no infinity.
            if math.isfinite(mean):
                site = self.sites.setdefault(place, LatentSum(place=place))
                site.numbers = count
                site.steps, site.means = [*site.steps, tick][-_LOOKS:], [*site.means, mean][-_LOOKS:]
                site.largest = max(site.largest, abs(mean))
        if self.sites:
            self._wait(tick)

    def _wait(self, tick: int) -> None:
        """Ask for the next late window, where a posterior may still collapse."""
        schedule, alive = self.host.schedule, all(abs(site.means[-1]) > _ALIVE for site in self.sites.values())
        if schedule.awaited is None and self._asked < _WINDOWS and not (tick >= _LATE and alive):
            self._asked += 1
            schedule.awaited = _LATE if tick < _LATE else tick * _APART

    def finish(self, how: str, error: BaseException | None) -> None:
        """Nothing of the program's is known any more."""
        self._known.clear()
        self._waiting.clear()
