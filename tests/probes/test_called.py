"""How many collectives a rank has called in each step, by the numbers that its process group gives them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from torchvet.probes.ranks import called
from torchvet.probes.ranks.called import CallCounts
from torchvet.recording.records.ranks import Called


def counted(monkeypatch: pytest.MonkeyPatch, steps: Sequence[tuple[int, int | None]]) -> Called | None:
    """After steps of these numbers, each with the number of the last collective by its end."""
    counts = CallCounts()
    for number, total in steps:
        monkeypatch.setattr(called, "numbered", lambda of_all_ranks, total=total: total)
        counts.step(number)
    return counts.record()


def test_steps_with_as_many_collectives_are_one_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    found = counted(monkeypatch, [(1, 7), (2, 10), (3, 13), (4, 15), (5, 18)])
    assert found is not None and (found.step, found.total) == (1, 7)
    assert [(s.last, s.calls) for s in found.stretches] == [(3, 3), (4, 2), (5, 3)]


@pytest.mark.parametrize("again", [(3, 13), (6, 16), (4, 2)])
def test_steps_that_were_not_heard_of_or_another_group_begin_the_count_anew(
    monkeypatch: pytest.MonkeyPatch, again: tuple[int, int]
) -> None:
    found = counted(monkeypatch, [(1, 7), (2, 10), (3, 13), again, (again[0] + 1, again[1] + 3)])
    assert found is not None and (found.step, found.total) == again


def test_without_a_group_that_counts_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counted(monkeypatch, [(1, None), (2, None)]) is None


def test_the_oldest_stretches_go_and_the_sum_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(called, "_MOST", 3)
    totals = [4, 5, 7, 8, 10, 11, 13]
    found = counted(monkeypatch, [(n, total) for n, total in enumerate(totals, 1)])
    assert found is not None and len(found.stretches) == 3
    known = found.total + sum(s.calls for s in found.stretches)
    assert (known, found.stretches[-1].last) == (13, 7)
