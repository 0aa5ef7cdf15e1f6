"""What probes of time have in common."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Watcher
from torchvet.probes.internals import private

ENDED = ("finished", "exit", "steps-reached")
"""How a program has ended after which it may be timed: after an error nobody waits for times."""
WORTH = 0.04
"""The share of a step from which on what takes it is timed. Chosen, not measured."""
_A_STEP = 0.0003
"""Its seconds in each step, at the least."""


class TimeWatcher(Watcher):
    """A probe of time: not on a simulated GPU, whose time means nothing, nor in runs that are timed themselves."""

    @classmethod
    def wanted(cls, options: Any) -> bool:
        """See `Watcher`."""
        return super().wanted(options) and options.simulated_gpu is None


class SampledTimer(TimeWatcher):
    """A probe of time that goes by what it hears in sampled steps."""

    only_sampled = frozenset(["boundary"])

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._before = 0
        """Sampled steps of a weaker kind, which do not count."""

    def restarted(self) -> None:
        """Steps are counted anew."""
        self._before = self.host.sampled_steps

    @property
    def sampled(self) -> int:
        """Sampled steps so far."""
        return self.host.sampled_steps - self._before

    def least(self) -> float:
        """Seconds in all sampled steps from which on what took them is worth timing."""
        sampled, steps = self.sampled, self.host.clock.main_steps
        return sampled * max(_A_STEP, WORTH * self.host.elapsed() / steps) if sampled > 0 < steps else math.inf


@contextmanager
def plain_torch(gradients: bool) -> Iterator[None]:
    """Torch without what the program has set: overridden functions, autocast, inference mode, warnings as errors. What
    is drawn by chance within does not change what the program draws next."""
    with (
        private.DisableTorchFunction(),
        torch.inference_mode(False),
        torch.set_grad_enabled(gradients),
        torch.autocast("cpu", enabled=False),
        torch.random.fork_rng(devices=[]),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def medians(measures: Sequence[Callable[[], float]], seconds: float, rounds: tuple[int, int] = (3, 20)) -> list[float]:
    """The median of the seconds that each measure gives, by turns: so that a busy moment of the machine hits all of
    them. So many rounds at the least; from then on until `seconds` have passed, or to the most."""
    taken: list[list[float]] = [[] for _ in measures]
    for measure in measures:
        measure()
    end = time.perf_counter() + seconds
    for number in range(rounds[1]):
        if number >= rounds[0] and time.perf_counter() > end:
            break
        for measure, found in zip(measures, taken, strict=True):
            found.append(measure())
    return [statistics.median(found) for found in taken]


def clock() -> Callable[[], float]:
    """The clock for what runs on the CPU. Where one thread does all, what the machine does meanwhile does not count."""
    return time.thread_time if torch.get_num_threads() == 1 else time.perf_counter


def clocked(way: Callable[[], object]) -> Callable[[], float]:
    """A measure of one call."""
    now = clock()

    def measure() -> float:
        started = now()
        way()
        return now() - started

    return measure
