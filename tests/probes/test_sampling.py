"""Windows open and close at boundaries, give way when a step is too long, and never take part in what they watch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy
import pytest
import torch

from torchvet.probes.base import graphs
from torchvet.probes.base.costs import Costs
from torchvet.probes.base.hooks import Taps
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.base.schedule import Schedule
from torchvet.probes.session.sampling import Sampling


class NoTaps:
    """Module hooks that are asked for and not needed."""

    def watch_modules(self) -> None:
        """Nothing."""


@pytest.fixture
def schedule() -> Schedule:
    return Schedule()


@pytest.fixture
def sampling(schedule: Schedule) -> Iterator[Sampling]:
    """Switched off after the test, whatever happened."""
    one = Sampling(KnownMemory(), cast(Taps, NoTaps()), schedule, Costs(schedule))
    yield one
    one.ledger.leave()


def test_a_window_ends_after_its_steps_and_follows_what_lives_on(sampling: Sampling) -> None:
    sampling.start("training", 1, 0.0, 2)
    kept: list[torch.Tensor] = []
    due = []
    for _ in range(2):
        kept.append(torch.zeros(1000))
        gone = torch.zeros(500)
        del gone
        due.append(sampling.boundary("training", 0.01))
    assert due == [False, True]
    closed = sampling.end(3)
    assert closed is not None and not sampling.on
    assert [b.nbytes for b in closed.cohort.births] == [4000, 4000] and closed.cohort.steps == 2
    assert closed.peak == closed.records[0].peak == 2 * 4000 + 2000
    assert (sampling.windows, sampling.steps) == (1, 2)


def test_what_the_first_step_finds_there_is_no_survivor_of_the_window(sampling: Sampling) -> None:
    """A carried graph's tensors are read by every backward pass: they are older than the window that notes them."""
    old = torch.zeros(1000)
    sampling.ledger.tick = 1
    sampling.start("training", 1, 0.0, 2)
    _ = old + 1
    sampling.boundary("training", 0.01)
    sampling.ledger.tick = 2
    loaded = torch.from_numpy(numpy.zeros(1000, dtype=numpy.float32))
    _ = loaded + old
    sampling.boundary("training", 0.01)
    closed = sampling.end(3)
    assert closed is not None
    del _
    (birth,) = [b for b in closed.cohort.births if b.died is None]
    assert birth.key == loaded.untyped_storage()._cdata


def test_a_step_that_is_too_long_ends_the_window_amid_it(sampling: Sampling) -> None:
    sampling.start("training", 1, 0.0, 2)
    sampling.ledger.most_operators = 3
    kept = [torch.zeros(100) for _ in range(9)]
    assert sampling.overdue
    closed = sampling.end(2, partial=True)
    assert closed is not None and len(closed.cohort.births) == 3 < len(kept)
    assert closed.cohort.steps == 0, "survivors, but no rate"


def test_the_step_that_a_window_ended_in_is_no_plain_one(schedule: Schedule) -> None:
    costs = Costs(schedule)
    one = Sampling(KnownMemory(), cast(Taps, NoTaps()), schedule, costs)
    for _ in range(3):
        one.boundary("training", 0.5)
    one.start("training", 1, 0.0, 2)
    one.ledger.most_operators = 2000
    for _ in range(2000):
        torch.zeros(1)
    one.end(2, partial=True)
    noting = one.ledger.noting
    one.boundary("training", 0.5 + noting + 0.01)
    # Noting counts by the thread's work where that is less: the machine may be busy.
    charged = costs.seconds["windows"]
    assert 0.01 <= charged <= noting + 0.02
    one.boundary("training", 0.9)
    assert costs.seconds["windows"] == charged


def test_within_backward_a_window_stays_until_it_can_be_left(sampling: Sampling) -> None:
    seen: list[Any] = []

    class Ends(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
            seen.append(sampling.end(2))
            return gradients[0]

    sampling.start("training", 1, 0.0, 2)
    x = torch.ones(3, requires_grad=True)
    Ends.apply(x).sum().backward()
    assert seen == [None] and sampling.on and sampling.overdue
    assert sampling.end(2) is not None and not sampling.on


def test_where_no_window_can_open_names_are_counted_all_the_same(sampling: Sampling, schedule: Schedule) -> None:
    with torch.inference_mode():
        for tick in range(1, 5):
            sampling.start("forward", tick, 0.0, 2)
    assert not sampling.on and sampling.windows == 0 and schedule.suspected


def test_an_abandoned_window_leaves_nothing(sampling: Sampling) -> None:
    sampling.start("backward", 1, 0.0, 2)
    kept = torch.zeros(10)
    sampling.abandon()
    assert not sampling.on and sampling.end(2) is None and sampling.ledger.births == []
    assert kept.numel()


def test_the_end_of_the_program_closes_what_has_seen_a_step(sampling: Sampling) -> None:
    sampling.start("training", 1, 0.0, 2)
    assert sampling.end_for_good(1) is None
    sampling.start("training", 1, 0.0, 2)
    kept = torch.zeros(100)
    sampling.boundary("training", 0.1)
    closed = sampling.end_for_good(2)
    assert closed is not None and sum(b.nbytes for b in closed.cohort.births) == kept.nbytes


def test_names_are_read_when_work_begins_as_long_as_there_is_time(sampling: Sampling) -> None:
    sampling.start("training", 1, 0.0, 2)
    sampling.boundary("training", 0.1)
    sampling.work_begins(graphs.never)
    assert sampling.ledger.read == set()
