"""A rate is a rate of training steps where there are any, and of what stored it where that came in bursts."""

from __future__ import annotations

from handmade import holding, outcome, program, rank, steps

from torchvet.analysis.steps import current_steps, steps_between, steps_of_bursts, steps_until
from torchvet.recording.records.base import Step


def test_only_steps_since_the_clock_started_anew_count() -> None:
    one = rank(program(), steps(30, "backward"), steps(20), outcome(20))
    assert len(current_steps(one)) == 20 and steps_until(one, 12, "training") == 12
    assert steps_until(one, 12, "evaluation") == 0


def test_backward_calls_of_weights_updated_by_hand_are_steps_beside_those_of_an_optimizer() -> None:
    one = rank(program(), steps(20), steps(400, "backward", start=21), outcome(420))
    assert steps_between(one, 10, 420) == ("backward", 410)
    assert steps_between(one, 5, 30) == ("training", 25)
    assert steps_until(one, 420, "training") == steps_until(one, 420, "backward") == 420


def test_training_steps_come_before_evaluation_steps() -> None:
    one = rank(program(), steps(10), steps(40, "evaluation", start=11), outcome(50))
    assert steps_between(one, 5, 50) == ("training", 5)
    assert steps_between(one, 10, 50) == ("evaluation", 40)


def test_no_steps_at_all_are_told_by_ticks() -> None:
    assert steps_between(rank(program(), outcome(0)), 3, 9) == ("training", 6)


def test_a_record_of_several_steps_counts_for_those_that_lie_between() -> None:
    # Of steps 65 to 80, noted by fours and eights.
    of_several = [Step(n=n, t=n, kind="training", count=count) for n, count in ((68, 4), (76, 8), (80, 4))]
    one = rank(program(), steps(64), *of_several, outcome(80))
    assert steps_between(one, 54, 72) == ("training", 18)
    assert steps_until(one, 70, "training") == 70


def test_what_follows_training_is_no_burst() -> None:
    one = rank(program(), steps(10), steps(5, "evaluation", start=11), steps(10, start=16), outcome(25))
    run = [(t, holding("x", direct=100 * n)) for t, n in ((5, 5), (16, 11), (25, 20))]
    assert steps_of_bursts(one, run, "training") is None
