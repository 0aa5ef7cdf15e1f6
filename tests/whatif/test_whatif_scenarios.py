"""The answers follow from what was measured, by arithmetic; what was not measured is a bound."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchvet.whatif.memory_budget import Situation
from torchvet.whatif.scenarios import NEVER, Answer, Fix, answers, dies_at, remarks

LEAKS = Situation(
    kind="training", steps=40, base=100e6, room=1e9, limit=1 << 30, limit_source="a card", growth=1e6, of_batch=40e6,
    device="cuda", cached=5_000_000,
)  # fmt: skip


def table(now: Situation, half: Situation | None = None, *fixes: Fix) -> dict[str, Answer]:
    return {a.asked: a for a in answers(now, half, list(fixes))}


@given(st.integers(0, 10**9), st.integers(1, 10**8), st.integers(1, 10**12))
def test_the_step_of_death_is_the_first_that_does_not_fit(base: int, growth: int, room: int) -> None:
    step = dies_at(base, growth, room)
    assert step is not None
    assert base + growth * step >= room or base > room
    assert step == 1 or base + growth * (step - 1) < room


def test_what_does_not_grow_never_dies_or_dies_at_once() -> None:
    assert dies_at(10, 0, 10) == NEVER
    assert dies_at(11, 0, 10) == 1
    assert dies_at(11, 5, None) is None


def test_a_leak_with_the_usual_shortcuts() -> None:
    rows = table(LEAKS)
    assert rows["as it is"].first == 900
    assert (rows["half the batch"].first, rows["half the batch"].last) == (900, 1840)
    assert rows["empty_cache() at every step"].first == 900
    assert "5.0 MB" in rows["empty_cache() at every step"].costs
    assert rows["twice the memory (2.1 GB = 2.0 GiB)"].first == math.ceil((1e9 + (1 << 30) - 100e6) / 1e6)
    assert rows["restart from a checkpoint every epoch"].last == 900


def test_half_the_batch_as_measured() -> None:
    half = dataclasses.replace(LEAKS, base=80e6, growth=0.5e6)
    row = table(LEAKS, half)["half the batch"]
    assert row.first == row.last == 1840
    assert "saves 20.0 MB" in row.costs


def test_the_fix_is_worth_its_findings_growth() -> None:
    whole = table(LEAKS, None, Fix("MEM101", "train.py:7", 1e6))
    assert whole["the fix of MEM101 at train.py:7"].first == NEVER
    parts = table(LEAKS, None, Fix("MEM101", "train.py:7", 0.6e6), Fix("MEM102", "train.py:9", 0.4e6))
    assert parts["the fix of MEM101 at train.py:7"].first == 2250
    assert parts["all fixes"].first == NEVER


def test_precision_is_bounded_both_ways() -> None:
    single = table(dataclasses.replace(LEAKS, float32=40e6))
    assert (single["mixed precision"].first, single["mixed precision"].last) == (900, 1840)
    assert "mixed precision off" not in single
    half = table(dataclasses.replace(LEAKS, half=40e6))
    assert half["mixed precision off"].first == 430
    assert half["mixed precision off"].last == 900


def test_graphs_that_are_kept_keep_copies_of_the_weights_too() -> None:
    graphs: Any = [SimpleNamespace(graph_per_step=1e6, holding=SimpleNamespace(name="losses"))]
    now = dataclasses.replace(LEAKS, float32=40e6, parameters=2e6)
    assert table(now)["mixed precision"].first == 899  # one set of copies, while a step lasts
    row = table(dataclasses.replace(now, growths=graphs))["mixed precision"]
    assert row.first == 450 and "for every graph that is kept" in row.costs


def test_on_the_cpu_empty_cache_does_nothing() -> None:
    row = table(dataclasses.replace(LEAKS, device="cpu"))["empty_cache() at every step"]
    assert row.costs == "does nothing on the CPU"


def test_nothing_grows_and_all_fits() -> None:
    calm = dataclasses.replace(LEAKS, growth=0.0)
    rows = table(calm)
    assert {a.first for a in rows.values()} == {NEVER}
    assert "restart from a checkpoint every epoch" not in rows
    assert not list(remarks(calm))


def test_without_a_limit_nothing_is_forecast() -> None:
    rows = table(dataclasses.replace(LEAKS, room=None, limit=None))
    assert {a.first for a in rows.values()} == {None}


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_waiting_for_data_is_said_as_measured(share: float) -> None:
    said = list(remarks(dataclasses.replace(LEAKS, loading=share)))
    assert any(f"{share:.0%}".replace("%", " %") in line for line in said)
