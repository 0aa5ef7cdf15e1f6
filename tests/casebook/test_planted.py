"""Planted faults are found in source, and their healthy twins are left in peace."""

from __future__ import annotations

import pytest

from casebook.source import Pair, pairs, score

PAIRS = list(pairs())


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: f"{p.code}-{p.shape}")
def test_the_faulty_program_is_found_and_the_healthy_one_silent(pair: Pair) -> None:
    said = score(pair)
    assert said.found, "missed"
    assert not said.alarms, said.alarms
