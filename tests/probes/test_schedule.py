"""When to look is decided by ticks and seconds alone, so that it can be played through exactly."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchvet.probes.base.schedule import (
    EARLY_ALLOWANCE,
    EARLY_WINDOWS,
    SUSPECT_CENSUSES,
    WINDOW_ALLOWANCE,
    Pace,
    Schedule,
)
from torchvet.recording.records.base import StepKind


def run(schedule: Schedule, steps: int, step: float, look: float) -> tuple[list[tuple[int, int]], list[int]]:
    """Windows (first tick, last tick) and censuses of a run; `step` and `look` are seconds."""
    elapsed, opened, left = 0.0, 0, 0
    windows: list[tuple[int, int]] = []
    censuses: list[int] = []
    for tick in range(1, steps + 1):
        elapsed += step
        if left:
            schedule.spend(look / 10)
            elapsed += look / 10
            left -= 1
            if not left:
                schedule.window_closed(tick)
                windows.append((opened, tick))
        if schedule.takes_census(tick, elapsed, look):
            censuses.append(tick)
            schedule.spend(look)
            elapsed += look
            schedule.census_taken(tick, elapsed)
        if not left and schedule.opens_window(tick, elapsed):
            opened, left = tick, schedule.window_length
    return windows, censuses


def test_the_same_run_is_looked_at_in_the_same_steps() -> None:
    assert run(Schedule(), 500, 0.01, 0.02) == run(Schedule(), 500, 0.01, 0.02)


def test_a_run_of_ten_steps_has_two_windows_whatever_they_cost() -> None:
    windows, _ = run(Schedule(), 10, 0.001, 5.0)
    assert len(windows) >= 2
    assert windows[0][0] <= 2 and windows[1][1] <= 6, "early, so that survivors have time to be seen"


def test_survivors_seen_by_the_sixth_step_are_looked_for_in_ten() -> None:
    schedule = Schedule()
    schedule.suspect(6)
    censuses = run(schedule, 10, 0.001, 0.5)[1]
    assert len(censuses) >= 2, "one census shows nothing that grows"


def test_censuses_beyond_the_first_wait_for_time() -> None:
    schedule = Schedule()
    schedule.suspect(5)
    _, censuses = run(schedule, 300, 0.01, 10.0)
    assert len(censuses) == SUSPECT_CENSUSES
    assert censuses == sorted(set(censuses))


def test_the_second_census_is_one_step_after_the_first() -> None:
    schedule = Schedule()
    schedule.suspect(5)
    _, censuses = run(schedule, 60, 0.01, 0.001)
    assert censuses[1] - censuses[0] == 1
    gaps = [b - a for a, b in itertools.pairwise(censuses[1:])]
    assert gaps and all(gap >= 3 for gap in gaps) and gaps == sorted(gaps)


def test_an_unsuspicious_short_run_is_looked_at_while_that_costs_next_to_nothing() -> None:
    assert run(Schedule(), 20, 0.01, 0.001)[1] == []
    assert run(Schedule(), 100, 0.001, 0.01)[1] == [24, 25, 50, 100]
    assert run(Schedule(), 100, 0.001, 0.06)[1] == [24], "what the first one takes nobody knows"


def test_the_next_early_look_is_made_where_all_of_them_stay_within_their_allowance() -> None:
    schedule = Schedule()
    assert schedule.takes_census(24, 0.1, 0.0)
    schedule.census_taken(24, 0.1)
    assert schedule.takes_census(25, 0.1, EARLY_ALLOWANCE / 2)
    assert not schedule.takes_census(25, 0.1, EARLY_ALLOWANCE / 2 + 0.001)


def test_an_early_look_is_cut_off_where_there_is_no_time_to_spare() -> None:
    assert Schedule().census_budget(1.0) == EARLY_ALLOWANCE
    assert Schedule(suspected=True).census_budget(1.0) == 0.5
    assert Schedule(spent=1.0).census_budget(5.0) == EARLY_ALLOWANCE
    assert Schedule(spent=1.0).census_budget(5.0, final=True) == 0.5, "no step waits for the last one"


def test_an_unsuspicious_long_run_is_looked_at_ever_more_rarely() -> None:
    """Half an hour: what is stored once in an epoch is to be seen as well."""
    censuses = run(Schedule(), 20_000, 0.1, 0.05)[1]
    assert 2 <= len(censuses) <= 12
    assert censuses[0] >= 10, "not before a second"
    gaps = [b - a for a, b in itertools.pairwise(censuses)]
    assert gaps == sorted(gaps)


def test_windows_lie_further_and_further_apart() -> None:
    starts = [first for first, _ in run(Schedule(), 5000, 0.1, 0.001)[0]]
    gaps = [b - a for a, b in itertools.pairwise(starts[EARLY_WINDOWS:])]
    assert len(gaps) >= 3 and gaps == sorted(gaps)


@pytest.mark.parametrize(
    ("given", "opens"), [(WINDOW_ALLOWANCE, 8), (2 * WINDOW_ALLOWANCE, 16), (4 * WINDOW_ALLOWANCE, 32)]
)
def test_the_third_window_comes_later_where_the_first_two_were_dear(given: float, opens: int) -> None:
    """What sampled steps of a model with many small operators take is not to be most of a short run."""
    schedule = Schedule()
    for tick in (3, 5):
        schedule.window_closed(tick)
    schedule.given, schedule.spent = given, 10.0
    assert next(tick for tick in range(6, 40) if schedule.opens_window(tick, 0.25 * tick)) == opens


def test_suspicion_brings_more_windows() -> None:
    schedule = Schedule()
    schedule.suspect(5)
    assert len(run(schedule, 5000, 0.1, 0.001)[0]) > len(run(Schedule(), 5000, 0.1, 0.001)[0])


def test_suspicion_is_raised_once() -> None:
    """A second suspicion must not bring the next census forward."""
    schedule = Schedule()
    schedule.suspect(5)
    schedule.census_taken(5, 1.0)
    schedule.census_taken(6, 1.0)
    due = schedule.census_at
    schedule.suspect(7)
    assert schedule.census_at == due


def test_an_early_look_that_was_cut_off_is_none_of_those_that_a_suspicion_asks_for() -> None:
    """A graph that gets longer is too long for an early look: the pair that measures it is still to come."""
    schedule = Schedule(spent=10.0)
    assert schedule.takes_census(24, 0.1, 0.0)
    schedule.cut_off(24, 0.1)
    assert schedule.census_at is None and not schedule.takes_census(48, 1.0, EARLY_ALLOWANCE)
    schedule.suspect(56)
    for tick in (56, 57, 85):
        assert schedule.takes_census(tick, 1.0, 0.5) and not schedule.takes_census(tick - 1, 1.0, 0.5)
        schedule.census_taken(tick, 1.0)


def test_cheap_looks_of_a_late_suspicion_come_soon() -> None:
    """The earlier ones were for the case that nothing grows, and a run of 200 steps ends before one of 250."""
    schedule = Schedule(spent=10.0)
    for tick in (24, 25, 50, 100):
        schedule.census_taken(tick, 1.0)
    schedule.suspect(168)
    due = [
        tick
        for tick in range(160, 200)
        if schedule.takes_census(tick, 1.0, 0.004) and not schedule.census_taken(tick, 1.0)
    ]
    assert due == [168, 169, 172, 175, 178, 183, 190]


def test_names_that_are_first_met_late_are_looked_at_again_at_any_cost() -> None:
    schedule = Schedule(spent=10.0)
    schedule.suspect(5)
    for tick in (5, 6, 9, 14):
        schedule.census_taken(tick, 1.0)
    schedule.census_taken(40, 2.0, anew=True)
    assert schedule.census_at == 41 and schedule.takes_census(41, 2.0, 0.5)
    schedule.census_taken(41, 2.0)
    assert schedule.takes_census(61, 3.0, 0.5)
    schedule.census_taken(61, 3.0)
    assert not schedule.takes_census(100, 4.0, 0.5)


@given(st.integers(20, 2000), st.floats(1e-4, 0.5), st.floats(1e-4, 2.0), st.booleans())
def test_what_is_not_free_stays_within_its_share(steps: int, step: float, look: float, suspected: bool) -> None:
    schedule = Schedule(share=0.03)
    if suspected:
        schedule.suspect(4)
    run(schedule, steps, step, look)
    free = look / 10 * (EARLY_WINDOWS * 2 + 1) + look * (SUSPECT_CENSUSES + 1) + EARLY_ALLOWANCE
    one_window = look / 10 * 8
    elapsed = steps * step + schedule.spent
    assert schedule.spent <= free + one_window + 0.03 * elapsed + max(look, 0.2)
    assert schedule.window_length <= 8


@pytest.mark.parametrize(("elapsed", "seconds"), [(0.0, 0.5), (10.0, 0.5), (60.0, 1.2), (1000.0, 2.0)])
def test_one_census_may_take_longer_in_a_longer_run(elapsed: float, seconds: float) -> None:
    assert Schedule(suspected=True).census_budget(elapsed) == pytest.approx(seconds)


def test_cheap_censuses_go_on_in_a_short_run_and_dear_ones_do_not() -> None:
    """Four seconds of a fast machine, of which windows have used the share up."""
    for seconds, more in ((0.005, True), (0.1, False)):
        schedule = Schedule(spent=1.0)
        schedule.suspect(5)
        for tick in (5, 6, 9):
            assert schedule.takes_census(tick, 1.0, seconds)
            schedule.census_taken(tick, 1.0)
        assert schedule.takes_census(40, 4.0, seconds) is more


def asked_at(steps: int, seconds: float, kind: StepKind = "training", steady: bool = True) -> list[int]:
    """The boundaries at which everything is asked, in a run of steps of one length."""
    pace, found = Pace(), []
    for tick in range(1, steps + 1):
        if pace.due(kind, tick, tick * seconds):
            found.append(tick)
            pace.asked(kind, tick, tick * seconds, steady)
    return found


def test_fast_steady_steps_are_asked_at_every_fourth_boundary_after_the_first() -> None:
    assert asked_at(80, 0.001) == [*range(1, 65), 68, 72, 76, 80]


def test_fast_steps_of_a_long_run_are_asked_ever_more_rarely() -> None:
    asked = asked_at(2112, 0.001)
    assert [t for t in asked if 244 <= t < 290] == [244, 248, 252, 256, 264, 272, 280, 288]
    assert [t for t in asked if 1000 <= t < 1100] == [1008, 1024, 1056, 1088] and asked[-2:] == [2048, 2112]
    assert asked_at(2100, 0.26) == list(range(1, 2101))


def test_slow_steps_and_those_that_are_not_steady_are_asked_at_every_boundary() -> None:
    every = list(range(1, 81))
    assert asked_at(80, 0.26) == every
    assert asked_at(80, 0.001, steady=False) == every
    assert asked_at(80, 0.001, kind="evaluation") == every
    assert asked_at(71, 0.13)[64:] == [66, 68, 70]


def test_whatever_begins_has_the_next_boundary_asked() -> None:
    pace = Pace()
    pace.asked("training", 64, 0.64, True)
    assert not pace.due("training", 65, 0.65)
    assert pace.due("evaluation", 65, 0.65)
    pace.disturb()
    assert pace.due("training", 66, 0.66)
    assert pace.since(66) == 2


def test_of_steady_steps_the_last_before_everything_is_asked_is_timed_and_stands_for_all() -> None:
    pace = Pace()
    pace.asked("training", 64, 0.64, True)
    assert pace.untimed
    assert [(pace.counted(tick), pace.untimed) for tick in (65, 66, 67)] == [(4, True), (4, True), (4, False)]
    pace.asked("training", 68, 0.68, True)
    assert pace.untimed
    pace.disturb()
    assert (pace.untimed, pace.counted(69)) == (False, 1)


def test_a_window_is_shorter_where_its_steps_cost_more_than_the_share_but_never_one_step() -> None:
    schedule = Schedule(share=0.03, window_length=8)
    assert schedule.length(elapsed=10.0, step=0.0) == 8
    assert schedule.length(elapsed=10.0, step=0.01) == 8
    assert schedule.length(elapsed=10.0, step=0.06) == 5
    schedule.spend(0.25)
    assert schedule.length(elapsed=10.0, step=0.06) == 2


def test_a_window_that_is_waited_for_opens_without_time_to_spare() -> None:
    schedule = Schedule(window_at=1000, awaited=100)
    schedule.spend(10.0)
    assert [tick for tick in range(90, 120) if schedule.opens_window(tick, 1.0)] == [100]
