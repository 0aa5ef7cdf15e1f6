"""A fix that makes a number finite is not proven by that alone: the number has to be a right one."""

from __future__ import annotations

import re

import pytest
from trials_by_hand import finding, trial

from torchvet.verifying.curves import compare
from torchvet.verifying.hiding import hidden
from torchvet.verifying.search import Fix, Search
from torchvet.verifying.trial import Trial, Wide

HEALTHY: list[float | None] = [0.05, 0.04, 0.045, 0.042]
LOST: list[float | None] = [None] * 4


def run(curve: list[float | None], gradients: list[float | None] | None = None, wide: Wide | None = None) -> Trial:
    return trial(curve=curve, gradients=gradients or [], wide=wide)


def test_a_loss_that_stands_out_is_no_right_one() -> None:
    before = run([*HEALTHY, *LOST])
    assert "the loss of pass 5 becomes 1, in the passes around it 0.05 at most" in hidden(
        before, run([*HEALTHY, 1.0, *HEALTHY[1:]]), True
    )
    assert hidden(before, run([*HEALTHY, 0.06, *HEALTHY[1:]]), True) == ""
    assert "becomes 0.16" in hidden(before, run([*HEALTHY, 0.16, *HEALTHY[1:]]), True)
    falling: list[float | None] = [0.9, 0.5, 0.2, 0.1]
    assert hidden(run([*falling, *LOST]), run([*falling, 0.4, 0.1, 0.1]), True) == "", "as early steps were"


def test_a_gradient_that_stands_out_is_no_right_one() -> None:
    before = run(HEALTHY, [0.9, None, None, None])
    assert "the gradient norm of pass 2 becomes 1e+05" in hidden(before, run(HEALTHY, [0.9, 1e5, 1.1, 1.0]), True)
    assert hidden(before, run(HEALTHY, [0.9, 4.0, 1.1, 1.0]), True) == ""


def test_steps_that_were_finite_stay_as_they_were() -> None:
    before, after = run([*HEALTHY, *LOST]), run([0.08, 0.04, 0.045, 0.042, 0.04])
    assert "the loss of pass 1 was 0.05, is 0.08" in hidden(before, after, True)
    assert hidden(before, after, False) == "", "a fix may be meant to change them"


@pytest.mark.parametrize(("now", "said"), [(0.3, "becomes 0.3, and is 0.044 in float64"), (0.045, "")])
def test_float64_says_what_the_loss_should_be(now: float, said: str) -> None:
    before = run([0.5, 0.4, None], wide=Wide("loss", 0.044))
    assert re.search(said, hidden(before, run([0.5, 0.4, now]), True))
    assert bool(said) == bool(hidden(before, run([0.5, 0.4, now]), True))


def test_gradients_that_were_clipped_are_not_held_against_float64() -> None:
    before = run(HEALTHY, [1.0, None, 1.0], Wide("gradient", 93.0))
    assert hidden(before, run(HEALTHY, [1.0, 1.0, 1.0]), True) == ""
    assert "in float64" in hidden(before, run(HEALTHY, [1.0, 2000.0, 900.0]), True)


def test_such_a_fix_is_refused() -> None:
    fault = finding("NUM101", 3)
    before = trial(fault, curve=[*HEALTHY, *LOST])
    after = trial(curve=[*HEALTHY, 1.0, *HEALTHY[1:]])
    found = Search(before, lambda made: after if made else before).run([Fix(fault, changes=True, keeps_finite=True)])
    assert not found.proven and "hides the fault" in found.refused[0][1]


def test_losses_that_are_not_finite_in_either_run_are_counted_apart() -> None:
    agreement = compare([1.0, None, None], [1.0, None, None])
    assert agreement.equal and (agreement.compared, agreement.finite) == (3, 1)


def test_a_loss_of_nothing_may_be_rounded() -> None:
    before = run([1.5, 0.0, 1.2, *LOST])
    assert hidden(before, run([1.5, 1e-8, 1.2, 1.3, 1.1, 1.2, 1.0]), True) == ""
    assert "the loss of pass 2 was 0, is 0.01" in hidden(before, run([1.5, 0.01, 1.2, 1.3, 1.1, 1.2, 1.0]), True)
