"""What a recording says about memory: how much a step takes, by how much that grows, and the room there is."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass, field

from torchvet.analysis import growth_of
from torchvet.analysis.growth import Growth
from torchvet.analysis.memory_limit import LASTING, room_of
from torchvet.analysis.steps import current_steps
from torchvet.recording import RankRecording
from torchvet.recording.records.base import StepKind, Window
from torchvet.recording.records.training import Outcome

FIXED = (*LASTING, "optimizer temporaries")
"""Categories that do not change with the batch. Backward temporaries may."""
_HALVES = ("float16", "bfloat16")
_TRUSTED = 2.0
"""The largest factor between the growth of the allocator's counter and that of named tensors."""


@dataclass(frozen=True)
class Situation:
    """One rank's memory: amounts in bytes, rates in bytes per step of `kind`."""

    kind: StepKind
    steps: int
    base: float
    """The peak of a first step, without any growth."""
    room: float | None
    """The most that `base` and the growth may come to; None if no limit is known."""
    limit: int | None
    limit_source: str
    growth: float
    growths: list[Growth] = field(default_factory=list)
    of_batch: float = 0.0
    """At most this part of `base` changes with the batch."""
    float32: float = 0.0
    """Activations in float32, a part of `base`."""
    half: float = 0.0
    """Activations in half precision, a part of `base`."""
    parameters: float = 0.0
    cached: int | None = None
    """Bytes that the caching allocator kept without using them, at the last step."""
    seconds: float | None = None
    """The median time of a step."""
    loading: float | None = None
    """The share of the time that the program waited for data."""
    ran_out: bool = False
    device: str = "cpu"


def situation_of(rank: RankRecording) -> Situation | None:
    """A rank's memory by its last samples; None if no window of steps was sampled."""
    program, windows = rank.program, rank.since_restart(Window) or rank.all(Window)
    if program is None or not windows:
        return None
    summary = growth_of(rank)
    growth = _growth(rank, summary.measured)
    steps = current_steps(rank)
    passed = sum(s.count for s in steps if s.kind == summary.kind) or rank.ticks
    highest = max(windows, key=lambda w: _without(growth, w))
    batch = sum(n for name, n in highest.categories.items() if name not in FIXED)
    grown = highest.peak - _without(growth, highest)
    outcome = rank.last(Outcome)
    last = steps[-1] if steps else None
    return Situation(
        kind=summary.kind,
        steps=passed,
        base=_without(growth, highest),
        room=room_of(rank),
        limit=program.memory_limit or None,
        limit_source=program.memory_limit_source,
        growth=growth,
        growths=summary.growths,
        of_batch=max(0.0, batch - grown),
        float32=_activations(highest, ("float32",)),
        half=_activations(highest, _HALVES),
        parameters=highest.categories.get("parameters", 0),
        cached=last.reserved - last.allocated if last and last.reserved and last.allocated else None,
        seconds=_seconds(rank),
        loading=_loading(rank),
        ran_out=outcome is not None and outcome.how == "out-of-memory",
        device=program.device,
    )


def _without(growth: float, window: Window) -> float:
    """A window's peak without what grew within it. Earlier growth is not in a window's peak, see `Window`."""
    return max(0.0, window.peak - growth * (window.last - window.first))


def _growth(rank: RankRecording, measured: float) -> float:
    """Bytes per step. A device's counter includes rounding; it counts only if names grow by a similar amount."""
    points = [(s.n, s.allocated) for s in current_steps(rank) if s.allocated is not None]
    half = len(points) // 2
    if measured <= 0 or half < 5:
        return max(0.0, measured)
    rates = [(points[i + half][1] - points[i][1]) / (points[i + half][0] - points[i][0]) for i in range(half)]
    counted = statistics.median(rates)
    return counted if measured / _TRUSTED <= counted <= measured * _TRUSTED else measured


def _activations(window: Window, dtypes: tuple[str, ...]) -> float:
    """Bytes allocated by forward passes in these precisions at the largest sites, at most all activations."""
    made = sum(s.bytes for s in window.sites if s.site.phase == "forward" and s.site.dtype in dtypes)
    return float(min(made, window.categories.get("activations", 0)))


def _seconds(rank: RankRecording) -> float | None:
    steps = current_steps(rank)
    gaps = [(b.t - a.t) / b.count for a, b in itertools.pairwise(steps) if b.count]
    return statistics.median(gaps) if len(gaps) >= 3 else None


def _loading(rank: RankRecording) -> float | None:
    totals = [sum(s.phases.values()) for s in current_steps(rank)]
    data = sum(s.phases.get("data", 0.0) for s in current_steps(rank))
    return data / sum(totals) if sum(totals) > 0 else None
