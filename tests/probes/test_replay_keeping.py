"""A step's start is kept: random states, and running statistics."""

from __future__ import annotations

import functools
import pickle
import platform
import random
from collections.abc import Callable

import pytest
import torch
from torch import nn

from torchvet.probes.replay.generators import _held
from torchvet.probes.replay.keeping import Kept


def test_random_numbers_and_running_statistics_come_again() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    kept = Kept()
    kept.follow([net])
    kept.take()
    first = (torch.rand(3), random.random(), net(torch.ones(5, 3)), net[1].num_batches_tracked.clone())
    after = [b.clone() for b in net.buffers()]
    kept.restore()
    assert net[1].num_batches_tracked == 0
    second = (torch.rand(3), random.random(), net(torch.ones(5, 3)), net[1].num_batches_tracked)
    assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(first, second, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(after, net.buffers(), strict=True))


def test_large_tables_are_not_copied() -> None:
    net = nn.BatchNorm1d(300_000)
    kept = Kept()
    kept.follow([net])
    assert kept._copies == []


def test_what_was_copied_during_an_evaluation_is_copied_to_again_in_training() -> None:
    net = nn.BatchNorm1d(4)
    kept = Kept()
    with torch.inference_mode():
        kept.follow([net])
        kept.take()
    net(torch.ones(5, 4))
    kept.take()
    expected = [b.clone() for b in net.buffers()]
    net(torch.ones(5, 4))
    kept.restore()
    assert all(torch.equal(a, b) for a, b in zip(expected, net.buffers(), strict=True))


@pytest.mark.parametrize(
    "draw", [random.random, lambda: random.gauss(0, 1), lambda: random.seed(5), lambda: random.getrandbits(32 * 624)]
)
def test_every_draw_from_pythons_generator_is_noticed(draw: Callable[[], object]) -> None:
    kept = Kept()
    for _ in range(3):
        draw()
        kept.take()
        after = [random.gauss(0, 1), random.random()]
        kept.restore()
        assert [random.gauss(0, 1), random.random()] == after


def test_a_generator_that_nobody_uses_is_not_copied_again() -> None:
    kept = Kept()
    kept.take()
    first = kept._python
    kept.take()
    assert kept._python is first or platform.python_implementation() != "CPython"


def test_a_partial_is_pickled_as_before_it_was_looked_at() -> None:
    one = functools.partial(print, 1)
    before = pickle.dumps(one)
    assert not _held(one) and pickle.dumps(one) == before
