"""Divisions by a standard deviation, which a constant column makes NaN before any step."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest

from torchvet.rules.numerics._spreads import _divisions
from torchvet.source.model import SourceFile

BARE = {
    "z = (x - x.mean(0)) / x.std(0)": 1,
    "mean, std = x.mean(0), x.std(0)\nz = (x - mean) / std": 2,
    "self.means, self.stds = given or (x.mean(0), x.std(0))\nz = (x - self.means[None]) / self.stds[None]": 2,
    "std, mean = torch.std_mean(x, 0)\nz = (x - mean) / std": 2,
}
GUARDED = (
    "z = (x - x.mean(0)) / (x.std(0) + 1e-8)",
    "std = x.std(0).clamp(min=1e-3)\nz = x / std",
    "std = torch.where(x.std(0) > 0, x.std(0), 1.0)\nz = x / std",
    "mean, std = x.mean(0), x.std(0)\nz = x / mean",
    "std, mean = torch.std_mean(x, 0)\nz = std / mean",
    "z = x / x.sum()",
)


@pytest.fixture
def lines() -> Callable[[str], list[int]]:
    return lambda text: [node.lineno for node in _divisions(SourceFile("a.py", text))]


@pytest.mark.parametrize(("text", "line"), BARE.items())
def test_a_division_by_a_spread(text: str, line: int, lines: Callable[[str], list[int]]) -> None:
    assert ast.parse(text)
    assert lines(text) == [line]


@pytest.mark.parametrize("text", GUARDED)
def test_what_is_kept_from_zero(text: str, lines: Callable[[str], list[int]]) -> None:
    assert lines(text) == []
