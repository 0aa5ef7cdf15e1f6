"""Counts the samples of sampled training steps, by the batches that loaders give."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from torchvet.probes.base.kit import Host, Record, StepKind
from torchvet.probes.objects.containers import tensors_in
from torchvet.probes.time.real_time import TimeWatcher
from torchvet.recording.records.timing import StepSamples

_TRAINS = ("training", "backward", "manual")
_DEPTH = 3
_MOST = 256
"""Steps that are remembered."""


class SampleCounter(TimeWatcher):
    """How many samples a step has."""

    only_sampled = frozenset(["batch_got", "boundary"])

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._under_way = 0
        self._steps: list[int] = []

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """Samples are along the first dimension of the first tensor of a batch that has one."""
        self._under_way += next((len(t) for t in tensors_in(batch, _DEPTH) if t.dim()), 0)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step has ended. What evaluations load is no part of one."""
        if kind in _TRAINS and self._under_way and len(self._steps) < _MOST:
            self._steps.append(self._under_way)
        self._under_way = 0

    def totals(self, tick: int) -> Iterable[Record]:
        """The usual step: one beside an evaluation that is no step of its own has more."""
        if self._steps:
            # An epoch's last batch is smaller: the median is the usual one.
            yield StepSamples(samples=round(statistics.median_low(self._steps)), steps=len(self._steps))
