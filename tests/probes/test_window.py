"""A window says how high memory went, what it was made of, and what stayed bound from the step before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from torchvet.probes.base.ledger import Ledger
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.memory import window
from torchvet.recording.records.base import Window
from torchvet.recording.records.training import StaleAtPeak, ZeroedInPlace

bug = pytest.mark.xfail
MB = 1_000_000


class Sampled:
    """A window that a test opens, passes boundaries of and closes, as the observer would."""

    def __init__(self) -> None:
        self.known = KnownMemory()
        self.ledger = Ledger()
        self.tick = 0
        self.number = 0

    def open(self) -> None:
        self.number += 1
        self.window = window.open_window(self.number, self.tick, "training", 9, self.known, self.ledger, 0.0)
        assert self.ledger.enter()

    def begins(self) -> None:
        window.next_forward_begins(self.window, self.ledger)

    def boundary(self) -> None:
        self.tick += 1
        window.pass_boundary(self.window, self.ledger, "training")

    def close(self) -> tuple[Window, list[Any]]:
        self.ledger.leave()
        first, *rest = window.close_window(self.window, self.tick, self.ledger, self.known, 1.0)
        return first, rest


@pytest.fixture
def sampled() -> Iterator[Sampled]:
    """Switched off after the test, whatever happened."""
    one = Sampled()
    yield one
    one.ledger.leave()


def block(megabytes: float) -> torch.Tensor:
    return torch.zeros(int(megabytes * MB / 4))


def test_the_peak_is_the_highest_sum_at_any_moment(sampled: Sampled) -> None:
    sampled.open()
    a = block(3)
    b = block(4)
    del a
    c = block(2)
    sampled.boundary()
    record, _ = sampled.close()
    assert record.peak == 7 * MB and record.born == 9 * MB
    assert record.categories == {"activations": 7 * MB}
    assert (record.first, record.last) == (1, 1)
    assert b.numel() + c.numel()


def test_known_memory_is_part_of_the_peak(sampled: Sampled) -> None:
    model = torch.nn.Linear(500, 500, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sampled.known.add_root(model)
    sampled.known.add_optimizer(optimizer)
    x = torch.ones(100, 500)
    for _ in range(2):
        sampled.open()
        optimizer.zero_grad()
        model(x).pow(2).sum().backward()
        sampled.ledger.phase = "optimizer"
        optimizer.step()
        sampled.ledger.phase = None
        sampled.boundary()
        record, _ = sampled.close()
    assert record.categories["parameters"] == MB
    assert record.categories["gradients"] == MB
    assert record.categories["optimizer state"] == MB
    assert record.peak == sum(record.categories.values()) >= 3 * MB + 100 * 500 * 4


def test_what_an_earlier_window_left_does_not_hide_the_peak(sampled: Sampled) -> None:
    sampled.open()
    old = block(10)
    sampled.boundary()
    assert sampled.close()[0].peak == 10 * MB
    sampled.open()
    del old
    new = block(4)
    del new
    sampled.boundary()
    assert sampled.close()[0].peak == 4 * MB


def test_an_empty_window(sampled: Sampled) -> None:
    sampled.open()
    sampled.boundary()
    record, rest = sampled.close()
    assert (record.peak, record.born, record.sites, rest) == (0, 0, [], [])


# What stays bound ----------------------------------------------------------------------------------------------------


def run_steps(sampled: Sampled, drop: bool, read: bool = False, steps: int = 3) -> list[StaleAtPeak]:
    """A loop whose `out` is of no use after its step. No assert in here: it would hide the variables."""
    sampled.open()
    for step in range(steps):
        if step:
            sampled.begins()
            if read:
                out.sum()  # noqa: F821
        hidden = torch.zeros(MB)
        hidden2 = torch.zeros(MB // 2)
        out = hidden + 1
        del hidden, hidden2
        if drop:
            del out
        sampled.boundary()
    return [r for r in sampled.close()[1] if isinstance(r, StaleAtPeak)]


def test_what_is_still_bound_from_the_step_before_is_named(sampled: Sampled) -> None:
    (record,) = run_steps(sampled, drop=False)
    assert record.names == ["out"] and record.bytes == record.name_bytes[0] == 4 * MB
    assert record.peak >= record.bytes
    assert record.bound is not None and record.bound.function == "run_steps"


def test_what_was_dropped_is_not_stale(sampled: Sampled) -> None:
    assert run_steps(sampled, drop=True) == []


def test_what_is_read_again_is_not_stale(sampled: Sampled) -> None:
    assert run_steps(sampled, drop=False, read=True) == []


def test_what_was_made_for_the_log_after_the_step_is_stale_as_well(sampled: Sampled) -> None:
    """The example of MEM202 itself: probabilities are computed for the log once the optimizer has stepped."""

    def steps() -> None:
        sampled.open()
        for step in range(3):
            if step:
                sampled.begins()
            hidden = torch.zeros(2 * MB)
            del hidden
            sampled.boundary()
            probabilities = torch.zeros(MB)
        del probabilities

    steps()
    (record,) = [r for r in sampled.close()[1] if isinstance(r, StaleAtPeak)]
    assert record.names == ["probabilities"] and record.bytes == 4 * MB


def test_what_this_step_has_made_before_its_first_pass_is_not_stale(sampled: Sampled) -> None:
    """A batch that is read once, to make two views of it, and a target that the step made itself."""

    def steps() -> None:
        sampled.open()
        for _ in range(4):
            batch = torch.zeros(MB)
            sampled.begins()
            hidden = torch.zeros(2 * MB)
            del hidden
            sampled.boundary()
        del batch

    steps()
    assert [r for r in sampled.close()[1] if isinstance(r, StaleAtPeak)] == []


def test_what_is_bound_above_and_below_the_pass_is_stale(sampled: Sampled) -> None:
    """The last store was the one below."""

    def steps() -> None:
        sampled.open()
        for step in range(4):
            kept = kept if step else None  # noqa: F821
            sampled.begins()
            hidden = torch.zeros(2 * MB)
            del hidden
            sampled.boundary()
            kept = torch.zeros(MB)
        del kept

    steps()
    (record,) = [r for r in sampled.close()[1] if isinstance(r, StaleAtPeak)]
    assert record.names == ["kept"] and record.bytes == 4 * MB


def test_what_dropping_it_would_save_is_replayed_not_assumed(sampled: Sampled) -> None:
    """Another moment, without the stale tensor, is only one megabyte lower than the peak."""

    def steps() -> None:
        sampled.open()
        for step in range(3):
            if step:
                sampled.begins()
            hidden = torch.zeros(2 * MB)
            del hidden
            if step:
                del out  # noqa: F821
            other = torch.zeros(2 * MB + MB - MB // 4)
            del other
            out = torch.zeros(MB)
            sampled.boundary()
        del out

    steps()
    (record,) = [r for r in sampled.close()[1] if isinstance(r, StaleAtPeak)]
    assert record.names == ["out"] and record.bytes == 4 * MB and record.saving == MB


# Gradients zeroed in place -------------------------------------------------------------------------------------------


def train(sampled: Sampled, to_none: bool) -> list[ZeroedInPlace]:
    model = torch.nn.Linear(500, 500, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampled.known.add_root(model)
    sampled.known.add_optimizer(optimizer)
    for _ in range(2):
        model(torch.ones(2, 500)).sum().backward()
    sampled.open()
    for _ in range(2):
        optimizer.zero_grad(set_to_none=to_none)
        x = torch.ones(2000, 500)
        model(x).pow(2).sum().backward()
        optimizer.step()
        sampled.boundary()
    return [r for r in sampled.close()[1] if isinstance(r, ZeroedInPlace)]


def test_gradients_zeroed_in_place_are_seen_with_their_line(sampled: Sampled) -> None:
    (record,) = train(sampled, to_none=False)
    assert record.bytes == MB
    assert record.place.path == __file__ and record.place.function.endswith("train")
    assert 0 < record.saving <= MB


def test_gradients_that_are_dropped_are_not_reported(sampled: Sampled) -> None:
    assert train(sampled, to_none=True) == []


def test_what_comes_to_lie_where_a_gradient_was_is_none(sampled: Sampled) -> None:
    model = torch.nn.Linear(500, 500, bias=False)
    sampled.known.add_root(model)
    model(torch.ones(2, 500)).sum().backward()
    sampled.open()
    model.weight.grad = None
    counts = [torch.ones(3) for _ in range(64)]
    for _ in range(2):
        for count in counts:
            count.zero_().add_(1.0)
        sampled.boundary()
    assert not [r for r in sampled.close()[1] if isinstance(r, ZeroedInPlace)]


def test_other_tensors_zeroed_in_place_are_not_gradients(sampled: Sampled) -> None:
    sampled.open()
    scratch = block(1)
    scratch.zero_()
    scratch.add_(1)
    sampled.boundary()
    assert sampled.close()[1] == []
