"""Sizes of tensors as they are written down."""

from __future__ import annotations

import ast

import pytest

from torchvet.rules.memory._sizes import Shape, after


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ("-1, 3", (None, 3)),
        ("x.size(0), -1", (None, None)),
        ("x.shape[0], -1, 1", (None, None, 1)),
        ("self.n, -1", ("self.n", None)),
        ("x.shape", None),
    ],
)
def test_what_minus_one_stands_for_is_not_known(sizes: str, shape: Shape | None) -> None:
    given = ast.parse(f"f({sizes})", mode="eval").body.args  # type: ignore[attr-defined]
    assert after("view", (4, 6), given, []) == shape
