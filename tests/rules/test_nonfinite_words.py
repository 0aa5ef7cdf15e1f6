"""What is said of a value that is not finite: rows are named where only some went wrong."""

from __future__ import annotations

import pytest

from torchvet.recording.records.nonfinite import NonFinite, Operand
from torchvet.rules.numerics import _nonfinite_words as say


def division(rows: list[int], shape: tuple[int, ...] = (64, 8)) -> NonFinite:
    divisor = Operand(dtype="float32", shape=(64, 1), zeros=1, largest=3.0)
    result = Operand(dtype="float32", shape=shape, nans=8)
    return NonFinite(
        tick=4, symptom="loss", found="operator", reason="zero-by-zero", operator="aten.div.Tensor",
        operands=[Operand(dtype="float32", shape=(64, 8)), divisor], result=result, rows=rows,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "said"),
    [([25], "; in row 25 of 64"), ([3, 25], "; in rows 3, 25 of 64"), ([], "0 / 0 is NaN"),
     (list(range(9)), "; in rows 0, 1, 2, 3, 4, 5, 6, 7 and more of 64"), (list(range(64)), "0 / 0 is NaN")],
)  # fmt: skip
def test_rows_that_went_wrong_are_named(rows: list[int], said: str) -> None:
    assert say.cause(division(rows)).endswith(said)


def test_a_scalar_has_no_rows() -> None:
    assert "row" not in say.cause(division([0], ()))
