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
"""Sites that are counted separately; a program that makes up modules as it goes has no end of them."""


class SiteTally:
    """One operator of one module on one line, in the forward pass."""

    def __init__(self, operator: str, module: str | None, user: Line | None, inner: Line | None) -> None:
        place, within = place_of_line(user), place_of_line(inner)
        self.record = ForecastSite(operator=operator, module=module, place=place, inner=within)
        self._by_tick: dict[int, float] = {}
        self.changed = False

    def add(self, size: float, tick: int, begins: bool) -> None:
        """A result whose largest magnitude is `size`; `begins` says that its overflow is this operator's own."""
        record, by_tick = self.record, self._by_tick
        if size > record.largest or not record.calls:
            record.largest, record.tick = size, tick
        record.calls += 1
        record.overflows += begins
        by_tick[tick] = max(size, by_tick.get(tick, 0.0))
        if len(by_tick) > 2:
            # Only the first step and the last are kept: their difference shows growth.
            del by_tick[sorted(by_tick)[1]]
        record.first, record.last = by_tick[min(by_tick)], by_tick[max(by_tick)]
        self.changed = True

    def cast(self, size: float) -> None:
        """An operand that would be cast to fp16 on the way in."""
        self.record.operand = max(self.record.operand, size)
        self.record.casts += size >= OVERFLOWS


class GradientTally:
    """Gradients of what one operator read, or of one parameter."""

    def __init__(self, kind: Literal["parameter", "activation"], name: str, site: SiteTally | None = None) -> None:
        self._counts: Counter[int] = Counter()
        self._record = ForecastGradient(kind=kind, name=name)
        if site is not None:
            self._record.module, self._record.operator = site.record.module, site.record.operator
            self._record.place = site.record.place or site.record.inner
        self.changed = False

    def add(self, gradient: torch.Tensor, tick: int, scale: float) -> None:
        """Measure a gradient of a loss that was multiplied by `scale`, a power of two."""
        record, size = self._record, largest(gradient) / scale
        if size > record.largest or not record.calls:
            record.largest, record.tick = size, tick
        counts, zeros = exponents(gradient)
        # A power of two only moves exponents. The counts themselves need no division.
        shift = round(math.log2(scale))
        for exponent, count in counts.items():
            self._counts[exponent - shift] += count
        record.zeros += zeros
        record.calls += 1
        record.shape = tuple(gradient.shape)
        self.changed = True

    @property
    def record(self) -> ForecastGradient:
        """The gradient as it stands."""
        self._record.exponents = dict(sorted(self._counts.items()))
        return self._record


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
            # By operator still: the largest value must not get lost.
            key, module, user, inner = (operator,), "(others)", None, None
        if key not in self._sites:
            self._sites[key] = SiteTally(operator, module, user, inner)
        return self._sites[key]

    def gradient(self, site: SiteTally) -> GradientTally:
        """The tally of the gradients that flow out of a site's backward."""
        key = id(site)
        if key not in self._gradients:
            name = f"{site.record.module or 'outside modules'}: {site.record.operator}"
            self._gradients[key] = GradientTally("activation", name, site)
        return self._gradients[key]

    def parameter(self, name: str) -> GradientTally:
        """The tally of a parameter's gradient."""
        if name not in self._gradients:
            self._gradients[name] = GradientTally("parameter", name)
        return self._gradients[name]

    def records(self) -> Iterator[ForecastSite | ForecastGradient]:
        """What has changed since it was asked for last."""
        tallies: list[SiteTally | GradientTally] = [*self._sites.values(), *self._gradients.values()]
        for tally in tallies:
            if tally.changed:
                tally.changed = False
                yield tally.record
