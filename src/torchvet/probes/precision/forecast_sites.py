"""What a forecast has counted so far: one tally a site, one a gradient; the records are made from them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import torch

from torchvet.probes.base.ledger import Line, place_of_line
from torchvet.probes.numerics.magnitudes import OVERFLOWS, exponents, largest
from torchvet.recording.records.forecast import ForecastGradient, ForecastSite

_MOST = 3000
"""Sites that are told apart; a program that makes up modules as it goes has no end of them."""


class SiteTally:
    """One operator of one module on one line, in the forward pass."""

    def __init__(self, operator: str, module: str | None, user: Line | None, inner: Line | None) -> None:
        self.operator, self.module, self.user, self.inner = operator, module, user, inner
        self.policy: Literal["half", "follows"] = "half"
        self.fills = False
        self.shape: tuple[int, ...] = ()
        self.calls = self.overflows = self.casts = self.tick = 0
        self.largest = self.operand = 0.0
        self._by_tick: dict[int, float] = {}
        self.changed = False

    def add(self, size: float, tick: int, begins: bool) -> None:
        """A result whose largest magnitude is `size`; `begins` says that its overflow is this operator's own."""
        if size > self.largest or not self.calls:
            self.largest, self.tick = size, tick
        self.calls += 1
        self.overflows += begins
        self._by_tick[tick] = max(size, self._by_tick.get(tick, 0.0))
        if len(self._by_tick) > 2:
            del self._by_tick[sorted(self._by_tick)[1]]
        self.changed = True

    def cast(self, size: float) -> None:
        """An operand that would be cast to fp16 on the way in."""
        self.operand = max(self.operand, size)
        self.casts += size >= OVERFLOWS

    def record(self) -> ForecastSite:
        """The site as it stands."""
        return ForecastSite(
            operator=self.operator, module=self.module, place=place_of_line(self.user),
            inner=place_of_line(self.inner), policy=self.policy, shape=self.shape, calls=self.calls,
            largest=self.largest, first=self._by_tick[min(self._by_tick)], last=self._by_tick[max(self._by_tick)],
            tick=self.tick, overflows=self.overflows, operand=self.operand, casts=self.casts, fills=self.fills,
        )  # fmt: skip


class GradientTally:
    """Gradients of what one operator read, or of one parameter."""

    def __init__(self, kind: Literal["parameter", "activation"], name: str, site: SiteTally | None = None) -> None:
        self.kind, self.name, self.site = kind, name, site
        self.largest = 0.0
        self.calls = self.tick = self.zeros = 0
        self.counts: Counter[int] = Counter()
        self.changed = False
        self.shape: tuple[int, ...] = ()

    def add(self, gradient: torch.Tensor, tick: int, scale: float) -> None:
        """Measure a gradient of a loss that was multiplied by `scale`, a power of two."""
        size = largest(gradient) / scale
        if size > self.largest or not self.calls:
            self.largest, self.tick = size, tick
        counts, zeros = exponents(gradient)
        shift = round(math.log2(scale))
        for exponent, count in counts.items():
            self.counts[exponent - shift] += count
        self.zeros += zeros
        self.calls += 1
        self.shape = tuple(gradient.shape)
        self.changed = True

    def record(self) -> ForecastGradient:
        """The gradient as it stands."""
        site = self.site
        return ForecastGradient(
            kind=self.kind, name=self.name, module=site.module if site else None,
            operator=site.operator if site else "", place=place_of_line(site.user or site.inner) if site else None,
            largest=self.largest, tick=self.tick, calls=self.calls, zeros=self.zeros,
            shape=self.shape,
            exponents=dict(sorted(self.counts.items())),
        )  # fmt: skip


class Tallies:
    """All of a run."""

    def __init__(self) -> None:
        self.half = self.float32 = self.off = 0
        self._sites: dict[Any, SiteTally] = {}
        self._gradients: dict[Any, GradientTally] = {}

    def site(self, operator: str, module: str | None, user: Line | None, inner: Line | None) -> SiteTally:
        """The tally of a site, made where it is new; one for all that come after too many."""
        key: Any = (operator, module, user)
        if key not in self._sites and len(self._sites) >= _MOST:
            key, module, user, inner = (operator,), "(others)", None, None
        if key not in self._sites:
            self._sites[key] = SiteTally(operator, module, user, inner)
        return self._sites[key]

    def gradient(self, site: SiteTally) -> GradientTally:
        """The tally of the gradients that flow out of a site's backward."""
        key = id(site)
        if key not in self._gradients:
            name = f"{site.module or 'outside modules'}: {site.operator}"
            self._gradients[key] = GradientTally("activation", name, site)
        return self._gradients[key]

    def parameter(self, name: str) -> GradientTally:
        """The tally of a parameter's gradient."""
        if name not in self._gradients:
            self._gradients[name] = GradientTally("parameter", name)
        return self._gradients[name]

    def records(self) -> Iterator[ForecastSite | ForecastGradient]:
        """What has changed since it was asked for last."""
        for site in self._sites.values():
            if site.changed:
                site.changed = False
                yield site.record()
        for gradient in self._gradients.values():
            if gradient.changed:
                gradient.changed = False
                yield gradient.record()
