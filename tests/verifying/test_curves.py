"""Two runs' losses: to the last bit, within a tolerance, or not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchvet.verifying.curves import compare, compare_output, same_output

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


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("", "", True),
        ("took 0 s, drift -0.000", "took 0.0 s, drift 0.000", True),
        ("step 10 loss 0.5012\n", "step 10 loss 0.5012\n", True),
        ("step 10 loss 0.50120\n", "step 10 loss 0.50121\n", True),
        ("step 10 loss 0.5012\n", "step 10 loss 0.6012\n", False),
        ("step 10\n", "step 10 done\n", False),
        ("tensor(0.5, grad_fn=<AddBackward0>)", "tensor(0.5)", False),
    ],
)
def test_outputs(before: str, after: str, same: bool) -> None:
    assert same_output(before, after) is same


@pytest.mark.parametrize(
    ("before", "after", "differ"),
    [
        ("epoch 1 loss 0.5  3.1s\ndone in 12 s", "epoch 1 loss 0.5  9.7s\ndone in 40 s", 0),
        ("peak 812.5 MB at 10:31:07", "peak 90 kB at 11:02:40", 0),
        ("score 0.1824\nscore 0.2", "score 0.0182\nscore 0.2", 1),
        ("score 0.5\n", "score 0.5\nscore 0.6\n", 1),
        ("loss nan", "loss 0.5", 1),
    ],
)
def test_lines_of_output_that_differ_in_more_than_times_and_sizes(before: str, after: str, differ: int) -> None:
    found = compare_output(before, after)
    assert found.differ == differ and found.lines == max(len(before.splitlines()), len(after.splitlines()))
    assert (found.first is None) is (differ == 0)
