"""What looking costs is charged once, to the kind of look that cost it, and to the budget."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from torchvet.probes.base import costs
from torchvet.probes.base.costs import ENTERING, KINDS, Costs
from torchvet.probes.base.schedule import Schedule


class Time:
    """A clock that a test sets. The thread works all the time but for `waited` seconds: others have the machine."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waited = 0.0

    def perf_counter(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.now - self.waited

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.waited += seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Iterator[Time]:
    one = Time()
    monkeypatch.setattr(costs, "time", one)
    yield one


def kinds(one: Costs) -> dict[str, Any]:
    return {k: pytest.approx(v) for k, v in one.seconds.items() if v}


def test_a_look_within_a_look_counts_as_its_own_kind_only(time: Time) -> None:
    schedule = Schedule()
    one = Costs(schedule)
    with one.of("boundaries"):
        time.now += 1
        with one.of("censuses"):
            time.now += 5
        time.now += 2
    assert kinds(one) == {"boundaries": 3, "censuses": 5}
    assert schedule.spent == pytest.approx(5), "a boundary is the same at every step: no schedule could help it"


def test_what_other_programs_take_is_reported_and_comes_out_of_no_budget(time: Time) -> None:
    """On a busy machine a look of a millisecond can last fifty: ten of those, and no graph was followed any more."""
    schedule = Schedule()
    one = Costs(schedule)
    with one.of("windows"):
        time.now += 1
        time.wait(20)
        with one.of("graphs"):
            time.wait(30)
            time.now += 3
        with one.of("events"):
            time.now += 0.5
    assert kinds(one) == {"windows": 21, "graphs": 33, "events": 0.5}
    assert schedule.spent == pytest.approx(1.5), "an event in a window is the window's work"
    assert one.graph_work == pytest.approx(3)


def test_a_look_that_raises_is_charged(time: Time) -> None:
    one = Costs(Schedule())
    with pytest.raises(KeyError), one.of("graphs"):
        time.now += 1
        raise KeyError
    with one.of("events"):
        time.now += 1
    assert kinds(one) == {"graphs": 1, "events": 1}


def test_a_look_amid_that_of_another_thread_is_not_counted_twice(time: Time) -> None:
    one = Costs(Schedule())

    def other() -> None:
        with one.of("graphs"):
            time.now += 1

    with one.of("boundaries"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert kinds(one) == {"boundaries": 1}
    other()
    assert kinds(one) == {"boundaries": 1, "graphs": 1}


def test_looks_are_no_part_of_a_step(time: Time) -> None:
    one = Costs(Schedule())
    time.now += 3
    with one.of("graphs"):
        time.now += 10
    assert one.step() == pytest.approx(3)
    time.now += 2
    assert one.step() == pytest.approx(2)


def test_sampled_steps_cost_what_noting_took_and_their_excess_over_plain_ones() -> None:
    schedule = Schedule()
    one = Costs(schedule)
    for seconds in (1.0, 1.1, 0.9):
        one.plain_step(seconds)
    one.sampled_step(1.5, 100_000, 0.3)
    assert one.sampled == pytest.approx(0.5)
    one.sampled_step(0.8, 100_000, 0.1)
    assert kinds(one) == pytest.approx({"windows": 0.6}) and schedule.spent == pytest.approx(0.6)


def test_sampled_steps_before_any_plain_one_are_charged_once_it_is_known_what_is_usual() -> None:
    """The first step is slow by itself: it is charged with what was measured, and twice what entering takes."""
    one = Costs(Schedule())
    one.sampled_step(9.0, 10_000, 0.2)
    one.sampled_step(1.25, 10_000, 0.2)
    assert kinds(one) == {}
    for _ in range(3):
        one.plain_step(1.0)
    charged = pytest.approx({"windows": 0.2 + 2 * 10_000 * ENTERING + 0.2 + 0.05})
    assert kinds(one) == charged
    one.settle()
    assert kinds(one) == charged, "once"


def test_a_run_of_sampled_steps_only_is_charged_by_its_operators() -> None:
    one = Costs(Schedule())
    one.sampled_step(1.0, 50_000, 0.7)
    one.settle()
    assert kinds(one) == pytest.approx({"windows": 0.7 + 50_000 * ENTERING})


def test_a_step_that_is_long_by_itself_is_no_cost_of_ours() -> None:
    one = Costs(Schedule())
    for _ in range(3):
        one.plain_step(1.0)
    one.sampled_step(60.0, 1000, 0.02)
    assert kinds(one) == pytest.approx({"windows": 0.02 + 2 * 1000 * ENTERING})


def test_steps_of_another_kind_do_not_compare() -> None:
    one = Costs(Schedule())
    for _ in range(9):
        one.plain_step(0.1)
    one.restart()
    one.sampled_step(4.0, 100_000, 0.0)
    for _ in range(3):
        one.plain_step(4.0)
    assert kinds(one) == {}


def test_every_kind_is_there_from_the_start() -> None:
    assert set(Costs(Schedule()).seconds) == set(KINDS)
