"""What a recording says of memory: how much is always there, how much comes and goes, what grows, what there is."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass, field

from torchvet.recording import RankRecording
from torchvet.recording.growth import Growth
from torchvet.recording.records import StepKind, Window
from torchvet.recording.room import LASTING, room_of
from torchvet.recording.steps import current_steps
from torchvet.recording.training_records import Outcome

FIXED = (*LASTING, "optimizer temporaries")
"""Categories that do not change with the batch. What a backward pass makes may, for all that is known here."""
_HALVES = ("float16", "bfloat16")
_TRUSTED = 2.0
"""How far the growth of the allocator's counter and that of named tensors may lie apart, as a factor."""


@dataclass(frozen=True)
class Situation:
    """One rank's memory. All amounts in bytes, rates a step of `kind`.

    `base` is what a first step without any growth comes to at its peak, `room` what it may come to; `of_batch` is the
    part of `base` that may change with the batch, at most, `float32` and `half` the parts of it that are activations in
    those precisions, `parameters` what the weights take.
    """

    kind: StepKind
    steps: int
    base: float
    room: float | None
    limit: int | None
    limit_source: str
    growth: float
    growths: list[Growth] = field(default_factory=list)
    of_batch: float = 0.0
    float32: float = 0.0
    half: float = 0.0
    parameters: float = 0.0
    cached: int | None = None
    """Bytes that the caching allocator kept without using them, at the last step."""
    seconds: float | None = None
    """A step's, the median."""
    loading: float | None = None
    """The share of the time that the program waited for data."""
    ran_out: bool = False
    device: str = "cpu"


def situation_of(rank: RankRecording) -> Situation | None:
    """The situation at a rank's last look; None where no window of steps was looked at."""
    program, windows = rank.program, rank.since_restart(Window) or rank.all(Window)
    if program is None or not windows:
        return None
    summary = rank.growth
    growth = _growth(rank, summary.measured)
    steps = current_steps(rank)
    passed = sum(s.count for s in steps if s.kind == summary.kind) or rank.ticks
    highest = max(windows, key=lambda w: _without(growth, w))
    batch = sum(n for name, n in highest.categories.items() if name not in FIXED)
    grown = highest.peak - _without(growth, highest)
    outcome = rank.last(Outcome)
    room = room_of(rank)
    last = steps[-1] if steps else None
    return Situation(
        kind=summary.kind, steps=passed, base=_without(growth, highest), room=room,
        limit=program.memory_limit or None, limit_source=program.memory_limit_source, growth=growth,
        growths=summary.growths, of_batch=max(0.0, batch - grown),
        float32=_activations(highest, ("float32",)), half=_activations(highest, _HALVES),
        parameters=highest.categories.get("parameters", 0),
        cached=last.reserved - last.allocated if last and last.reserved and last.allocated else None,
        seconds=_seconds(rank), loading=_loading(rank), device=program.device,
        ran_out=outcome is not None and outcome.how == "out-of-memory",
    )  # fmt: skip


def _without(growth: float, window: Window) -> float:
    """A window's peak without what grew within it. What had grown before it is not in its peak: see `Window`."""
    return max(0.0, window.peak - growth * (window.last - window.first))


def _growth(rank: RankRecording, measured: float) -> float:
    """Bytes a step. A device's own counter knows what its allocator rounds up; it is asked where names grow too."""
    points = [(s.n, s.allocated) for s in current_steps(rank) if s.allocated is not None]
    half = len(points) // 2
    if measured <= 0 or half < 5:
        return max(0.0, measured)
    rates = [(points[i + half][1] - points[i][1]) / (points[i + half][0] - points[i][0]) for i in range(half)]
    counted = statistics.median(rates)
    return counted if measured / _TRUSTED <= counted <= measured * _TRUSTED else measured


def _activations(window: Window, dtypes: tuple[str, ...]) -> float:
    """Bytes of the window's largest sites that the forward pass made in these precisions, no more than there were."""
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
