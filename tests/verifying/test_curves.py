"""Two runs' losses: to the last bit, within a tolerance, or not."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from torchvet.verifying.curves import compare, compare_sums

LOSSES = st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=1, max_size=20)


@given(LOSSES)
def test_a_curve_agrees_with_itself(curve: list[float]) -> None:
    agreement = compare(curve, list(curve))
    assert agreement.equal and agreement.within(0.0) and agreement.first is None
    assert (agreement.before, agreement.after) == (curve[-1], curve[-1])


@given(LOSSES, st.data())
def test_one_loss_that_differs_is_found_and_measured(curve: list[float], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(curve) - 1))
    other = [*curve]
    other[at] = curve[at] * 2 + 1e7
    agreement = compare(curve, other)
    assert not agreement.equal and agreement.first == at + 1
    expected = abs(other[at] - curve[at]) / max(abs(other[at]), abs(curve[at]))
    assert math.isclose(agreement.largest, expected)
    assert agreement.within(expected) and not agreement.within(expected * 0.99)


def test_another_number_of_passes_is_no_agreement() -> None:
    agreement = compare([1.0, 2.0], [1.0])
    assert not agreement.equal and not agreement.within(1.0) and agreement.lengths == (2, 1)
    assert not compare([], []).equal


def test_a_program_that_failed_is_compared_as_far_as_it_came() -> None:
    assert compare([1.0, 2.0], [1.0, 2.0, 3.0], shorter=True).equal
    assert not compare([1.0, 2.0], [1.0], shorter=True).equal


def test_what_comes_after_the_loss_lost_its_numbers_cannot_agree() -> None:
    assert compare([1.0, 2.0, None, None], [1.0, 2.0, 3.0, 4.0]).equal
    assert not compare([1.0, 9.0, None], [1.0, 2.0, 3.0]).equal
    lost = compare([1.0, 2.0], [1.0, None])
    assert lost.largest == float("inf") and not lost.within(1e9)
    assert compare([None, None], [None, None]).equal


def test_where_passes_were_joined_the_sums_of_each_steps_losses_are_compared() -> None:
    before: list[list[float | None]] = [[1.0, 2.0], [0.5, 0.25]]
    agreement = compare_sums(before, [[3.0], [0.75]])
    assert agreement.equal and agreement.joined == (4, 2) and agreement.compared == 2
    other = compare_sums(before, [[3.0], [0.5]])
    assert other.first == 2 and other.largest == 0.25 / 0.75
    assert compare_sums([[1.0, None]], [[None]]).equal
