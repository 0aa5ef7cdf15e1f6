"""Steady growth is told from warming up, jumps, noise and sawteeth; too little says nothing."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from torchvet.analysis.trend import Trend, trend_of

KB, MB = 1_000, 1_000_000


def trend(shape: Callable[[int], float], steps: int = 80) -> Trend:
    found = trend_of([(n, int(100 * MB + shape(n))) for n in range(1, steps + 1)])
    assert found is not None
    return found


@pytest.mark.parametrize("steps", [12, 24, 80, 1000])
def test_a_steady_rise_is_its_rate(steps: int) -> None:
    found = trend(lambda n: 5 * KB * n, steps)
    assert found.rate == found.low == found.high == 5 * KB and not found.falls


def test_noise_widens_the_interval_and_leaves_the_rate_near() -> None:
    noise = random.Random(0)
    found = trend(lambda n: 20 * KB * n + noise.uniform(0, 60 * KB))
    assert found.low < found.rate < found.high and 14 * KB < found.rate < 26 * KB


@pytest.mark.parametrize("shape", [
    lambda n: 0,
    lambda n: min(n, 30) * MB,
    lambda n: 8 * MB * (n > 55),
    lambda n: 3 * MB * (n % 4),
], ids=["flat", "warming up", "a jump", "a step's own ups and downs"])  # fmt: skip
def test_what_does_not_go_on_rising_is_flat(shape: Callable[[int], float]) -> None:
    found = trend(shape)
    assert found.low <= found.rate <= found.high <= 0


def test_a_tooth_of_a_saw_falls_and_does_not_pass_its_former_height() -> None:
    found = trend(lambda n: 50 * KB * (n % 30), steps=89)
    assert found.falls and found.ceiling <= 0


def test_a_saw_on_a_rise_passes_it() -> None:
    found = trend(lambda n: 50 * KB * n + 300 * KB * (n % 5), steps=90)
    assert found.ceiling > 40 * KB and found.rate > 40 * KB


@pytest.mark.parametrize("steps", [0, 1, 8])
def test_too_few_samples_say_nothing(steps: int) -> None:
    assert trend_of([(n, n) for n in range(steps)]) is None
