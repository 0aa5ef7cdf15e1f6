"""What a precision forecast adds up to: headroom, the loss scale that fits, what would vanish under which scale."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from torchvet.recording.reader import RankRecording
from torchvet.recording.records.forecast import ForecastGradient, ForecastRun, ForecastSite

LARGEST = 65504.0
"""The largest float16; from 65520 on a number rounds to infinity."""
# Halfway to 65536, which would be the next one, and is a tie that rounds up.
OVERFLOWS = 65520.0
INITIAL = 16
"""GradScaler begins with a scale of 2**16."""
# The least subnormal is 2**-24: half of it, and what lies below, rounds to 0.
_ZERO, _SUBNORMAL = -25, -14
"""A number below 2**-25 rounds to zero in float16, one below 2**-14 is subnormal: it has lost digits."""
_FEW, _SHARE = 3, 0.1
"""Islands in float32 are for so many operators, or for such a share of them; past that bfloat16 is the answer."""
NEAR = 2.0
"""Bits of headroom below which an operator is near the limit."""
VANISHES = 0.5
"""Share of a weight's gradient that must vanish under the best scale before its layer is said not to learn."""

_LOW = 0.01
"""The share of gradients that may be smaller than what counts as the smallest of them: a few always are."""

Verdict = Literal["float16", "float16 with islands", "bfloat16"]


@dataclass(frozen=True)
class Format:
    """A half precision: its largest number, and its smallest normal one as a power of two."""

    largest: float
    smallest_normal: int


FORMATS = {"float16": Format(LARGEST, _SUBNORMAL), "bfloat16": Format((2 - 2**-7) * 2.0**127, -126)}
"""By name."""


def headroom(magnitude: float) -> float:
    """Bits (powers of two) between a magnitude and the largest float16; negative beyond it, infinite for zero."""
    return math.log2(LARGEST / magnitude) if magnitude > 0 else math.inf


@dataclass(frozen=True)
class Forecast:
    """The last word of each record of a run's forecast."""

    run: ForecastRun
    sites: list[ForecastSite]
    gradients: list[ForecastGradient]

    @cached_property
    def overflowing(self) -> list[ForecastSite]:
        """Where a value would first become infinite: as a result, or cast to float16 on its way in; worst first."""
        return sorted((s for s in self.sites if s.overflows or s.casts), key=lambda s: -max(s.largest, s.operand))

    @cached_property
    def near(self) -> list[ForecastSite]:
        """What stays within the range by less than two bits, the nearest first."""
        safe = [s for s in self.sites if s.largest < OVERFLOWS and not (s.overflows or s.casts)]
        return sorted((s for s in safe if headroom(s.largest) < NEAR), key=lambda s: -s.largest)

    @cached_property
    def largest_gradient(self) -> ForecastGradient | None:
        """The gradient that bounds the loss scale."""
        return max((g for g in self.gradients if g.largest > 0), key=lambda g: g.largest, default=None)

    @cached_property
    def scale(self) -> int | None:
        """The power of two that GradScaler would settle at: the largest under which no gradient overflows."""
        bound = self.largest_gradient
        # GradScaler doubles and halves: only powers of two can be reached.
        return None if bound is None else math.floor(math.log2(LARGEST / bound.largest))

    @cached_property
    def vanishing(self) -> list[ForecastGradient]:
        """Weights most of whose gradient is zero in float16 under the best scale and the first one.

        Vectors are left out: biases before a normalisation, and those of attention's keys, have a gradient that is zero
        but for rounding.
        """
        # With the first scale at least: what vanishes only under a scale that it has already left is no loss.
        best = max(self.scale or INITIAL, INITIAL)
        weights = (g for g in self.gradients if g.kind == "parameter" and len(g.shape) > 1)
        return [g for g in weights if g.exponents and underflow([g], best) >= VANISHES]

    @cached_property
    def verdict(self) -> Verdict:
        """Which half precision fits."""
        # Lines of one module that overflow need one island.
        count = len({(s.module, s.operator) for s in self.overflowing})
        if self.vanishing or count > max(_FEW, _SHARE * len(self.sites)):
            return "bfloat16"
        return "float16 with islands" if count else "float16"


def underflow(gradients: Iterable[ForecastGradient], scale: int) -> float:
    """The share of elements other than zero that would be zero in float16 under a loss scale of 2**`scale`."""
    return _below(gradients, _ZERO - scale)


def subnormal(gradients: Iterable[ForecastGradient], scale: int) -> float:
    """The share that would be left, with lost digits: subnormal in float16."""
    gradients = list(gradients)
    return _below(gradients, _SUBNORMAL - scale) - _below(gradients, _ZERO - scale)


def low_exponent(gradients: Iterable[ForecastGradient]) -> int | None:
    """The power of two below which a hundredth of the elements other than zero lie at most; None without any."""
    counts: Counter[int] = Counter()
    for gradient in gradients:
        counts.update(gradient.exponents)
    allowed, below = _LOW * sum(counts.values()), 0
    for exponent, number in sorted(counts.items()):
        below += number
        if below > allowed:
            # They are at least half of the power of two above them.
            return exponent - 1
    return None


def _below(gradients: Iterable[ForecastGradient], exponent: int) -> float:
    counts: Counter[int] = Counter()
    for gradient in gradients:
        counts.update(gradient.exponents)
    total = sum(counts.values())
    return sum(n for e, n in counts.items() if e <= exponent) / total if total else 0.0


def forecast_of(rank: RankRecording) -> Forecast | None:
    """The forecast of a rank, None where none was asked for or nothing was seen."""
    run = rank.last(ForecastRun)
    if run is None:
        return None
    # Later records of one site replace earlier ones: extremes only grow.
    sites = {(s.operator, s.module, s.place, s.inner): s for s in rank.all(ForecastSite)}
    gradients = {(g.kind, g.name, g.place): g for g in rank.all(ForecastGradient)}
    return Forecast(run, list(sites.values()), list(gradients.values()))
