"""What runs of one program under several precisions add up to: seconds, bytes and losses side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from torchvet.recording.records.amp import AmpMode, AmpRun, Unaligned
from torchvet.recording.records.base import Place

MODES: tuple[AmpMode, ...] = ("float32", "float16", "bfloat16")
WARM_UP = 3
"""Steps at first that count for nothing: caches fill, kernels are chosen."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One process: what its watcher wrote, its peak in bytes (the largest sampled one on the CPU), how it failed."""

    mode: AmpMode
    run: AmpRun | None = None
    peak: int | None = None
    activations: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class Side:
    """All trials of a mode. `spread` is from the quickest trial to the slowest, `seconds` the quickest.

    A trial's seconds are what a tenth of its steps keep below: what else the machine does, and looking at memory in
    some of them, makes steps slower and none quicker.
    """

    mode: AmpMode
    seconds: float | None = None
    spread: tuple[float, float] = (0.0, 0.0)
    peak: int | None = None
    activations: int | None = None
    losses: list[float] = field(default_factory=list)
    skipped: int = 0
    scale: float | None = None
    native: bool = False
    not_finite: int = 0
    error: str | None = None

    @property
    def final_loss(self) -> float | None:
        """The mean of the last tenth of the losses, at least three: single steps are noise."""
        # `max` keeps the slice from `-0`, which would be all of them.
        tail = self.losses[-max(3, len(self.losses) // 10) :]
        return statistics.fmean(tail) if tail else None


@dataclass(frozen=True)
class AmpResult:
    """The sides in the order of `MODES`, and what is the same for all of them."""

    sides: dict[AmpMode, Side]
    device: str
    how: str
    wanted: AmpMode | None
    place: Place | None
    copies: int
    unaligned: list[Unaligned]
    steps: int
    trials: int
    clock: str

    def ratio(self, mode: AmpMode) -> float | None:
        """Seconds of a mode's step by those of float32's: above 1 it is slower."""
        return _by(self.sides[mode].seconds, self.sides["float32"].seconds)

    def memory(self, mode: AmpMode) -> float | None:
        """Peak bytes by those of float32."""
        return _by(self.sides[mode].peak, self.sides["float32"].peak)

    def loss_difference(self, mode: AmpMode) -> float | None:
        """The final loss's relative difference from float32's."""
        mine, other = self.sides[mode].final_loss, self.sides["float32"].final_loss
        # Losses may be negative (a log likelihood), so `abs` keeps the sign of the difference.
        return None if mine is None or not other else (mine - other) / abs(other)


def result_of(trials: Iterable[Trial]) -> AmpResult | None:
    """None where no trial saw a training step."""
    trials = list(trials)
    seen = _that_stepped(trials)
    if not seen:
        return None
    of_mode = {mode: [t for t in trials if t.mode == mode] for mode in MODES}
    # A trial that forces a mode may still have seen which one the program asks for.
    wanted, place = next(((r.wanted, r.place) for r in seen if r.wanted), ("", None))
    return AmpResult(
        sides={mode: _side(mode, some) for mode, some in of_mode.items()},
        device=seen[0].device,
        how="own" if any(r.how == "own" for r in seen) else "wrapped",
        wanted=next((mode for mode in MODES if mode == wanted), None),
        place=place,
        copies=seen[0].copies,
        unaligned=seen[0].unaligned,
        steps=max(len(r.losses) + r.not_finite for r in seen),
        trials=max(map(len, of_mode.values())),
        clock=seen[0].clock,
    )


def _that_stepped(trials: Iterable[Trial]) -> list[AmpRun]:
    return [t.run for t in trials if t.run is not None and t.run.seconds]


def _side(mode: AmpMode, trials: list[Trial]) -> Side:
    runs = _that_stepped(trials)
    error = next(filter(None, (t.error for t in trials)), None)
    if not runs:
        return Side(mode, error=error or "no training step was seen")
    quick = [sorted(s)[len(s) // 10] for s in (_settled(r.seconds) for r in runs)]
    return Side(
        mode,
        min(quick),
        (min(quick), max(quick)),
        # The device's own count first; the sampled one misses what lies between two samples.
        max(filter(None, (t.run.peak or t.peak for t in trials if t.run is not None)), default=None),
        max(filter(None, (t.activations for t in trials)), default=None),
        runs[0].losses,
        max(r.skipped for r in runs),
        runs[-1].scale,
        runs[0].native,
        runs[0].not_finite,
        error,
    )


def _settled(seconds: list[float]) -> list[float]:
    # Of a few steps a warm one is better than none.
    return seconds[WARM_UP:] if len(seconds) > 2 * WARM_UP else seconds


def _by(mine: float | None, other: float | None) -> float | None:
    return mine / other if mine and other and math.isfinite(mine / other) else None
