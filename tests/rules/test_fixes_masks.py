"""Edits for rows that a mask leaves nothing of."""

from __future__ import annotations

import pytest
from observed_fixes import fixed_lines

LOWEST = "torch.finfo(scores.dtype).min"


@pytest.mark.parametrize("infinite", ['float("-inf")', "-float('inf')", "-torch.inf", "-math.inf"])
@pytest.mark.parametrize("asked", ["torch.softmax(scores, dim=-1)", "F.log_softmax(scores, -1)", "scores.softmax(-1)"])
def test_a_mask_fills_with_the_lowest_number_of_the_dtype(infinite: str, asked: str) -> None:
    text = "import math\n\ndef attend(scores, mask):\n    scores = scores.masked_fill(mask, {})  # é\n    return {}\n"
    assert fixed_lines("NUM106", text.format(infinite, asked), "return")[1] == [
        f"    scores = scores.masked_fill(mask, {LOWEST})  # é"
    ]


def test_two_masks_are_both_finite_and_one_in_place_too() -> None:
    text = "def f(self, m, n):\n    self.s.masked_fill_(m, -torch.inf)\n    self.s.masked_fill_(n, value=-torch.inf)\n"
    put = fixed_lines("NUM106", text + "    return self.s.softmax(1)\n", "return")[1]
    assert [one.count("torch.finfo(self.s.dtype).min") for one in put] == [1, 1]
    on_one_line = "y = scores.masked_fill(mask, float('-inf')).softmax(-1)\n"
    assert fixed_lines("NUM106", on_one_line, "y =")[1] == [f"y = scores.masked_fill(mask, {LOWEST}).softmax(-1)"]


@pytest.mark.parametrize(
    "text",
    [
        "y = scores.masked_fill(mask, 0.0).softmax(-1)\n",
        "scores = scores.masked_fill(mask, float('inf'))\ny = scores.softmax(-1)\n",
        "y = (q @ k).masked_fill(mask, float('-inf')).softmax(-1)\n",
        "others = others.masked_fill(mask, float('-inf'))\ny = scores.softmax(-1)\n",
        "y = scores.softmax(-1) + others.softmax(-1)\n",
        "y = scores.softmax(-1)\nscores = scores.masked_fill(mask, float('-inf'))\n",
        "scores = scores.masked_fill(mask, float('-inf'))\ny = scores.softmax(-1)\nf = torch.jit.script(g)\n",
    ],
)
def test_nothing_where_the_filling_is_another_s_or_not_seen(text: str) -> None:
    assert fixed_lines("NUM106", text, "y =") == ([], [])
