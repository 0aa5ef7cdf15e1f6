"""A graph that gets longer from step to step is counted although a census has no time to walk all of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from looking import by_name, look, only_names_of

from torchvet.probes.base import graphs
from torchvet.probes.base.ledger import Ledger
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.memory.census import CensusTaker, _Count
from torchvet.recording.records.base import Census


@pytest.fixture(autouse=True)
def only_this_file(monkeypatch: pytest.MonkeyPatch) -> None:
    only_names_of(monkeypatch, __file__, __name__)


def test_after_a_census_that_was_cut_short_only_what_is_new_of_a_carried_graph_is_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else each census walks the same hundred thousand nodes in vain, and has no time left for those that came."""
    followed: list[int] = []
    walk = graphs.walk

    def counting(*args: Any) -> graphs.Reach:
        reach = walk(*args)
        followed.append(reach.nodes)
        return reach

    monkeypatch.setattr(graphs, "walk", counting)

    def main() -> list[Census]:
        taker, ledger = CensusTaker(KnownMemory(), budget=0.05), Ledger()
        total, found = torch.ones(1, requires_grad=True) * 1, []
        for _ in range(120_000):
            total = total + 1
        for tick in range(1, 4):
            for _ in range(100):
                total = total + 1
            found.append(look(taker, ledger, tick))
        return found

    censuses = main()
    nodes = [by_name(c)["total"].nodes for c in censuses]
    assert followed[0] > 1000 and followed[1:] == [100, 100]
    assert nodes[1:] == [nodes[0] + 100, nodes[0] + 200]


def test_where_not_all_that_is_new_can_be_followed_the_rest_is_estimated_by_its_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A million nodes from one census to the next: a part of them is not the rate."""
    monkeypatch.setattr(_Count, "late", lambda self: True)

    def main() -> list[Census]:
        taker, ledger = CensusTaker(KnownMemory(), budget=20.0), Ledger()
        total, found = torch.ones(1, requires_grad=True) * 1, []
        for tick, longer in enumerate((2000, 100, 20_000), start=1):
            for _ in range(longer):
                total = total + 1
            found.append(look(taker, ledger, tick))
        return found

    nodes = [by_name(c)["total"].nodes for c in main()]
    assert nodes == pytest.approx([1024, 1124, 21_124], rel=0.01)


def test_a_carried_graph_that_was_let_go_counts_for_no_later_one() -> None:
    """A state that begins anew: what was counted below its last value does not hang below this one."""

    def main() -> list[Census]:
        taker, ledger = CensusTaker(KnownMemory(), budget=0.05), Ledger()
        found = []
        for tick in range(1, 5):
            if tick in (1, 4):
                total = torch.ones(1, requires_grad=True) * 1
            for _ in range(120_000 if tick == 1 else 10):
                total = total + 1
            found.append(look(taker, ledger, tick))
        return found

    assert [by_name(c)["total"].nodes for c in main()][-1] < 100
