"""Operators are counted by line, in steps that are too long to be seen whole as well."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from torchvet.probes.base.ledger import Ledger, locate
from torchvet.probes.time.line_operators import LineOperators
from torchvet.recording.records.timing import LineOperations


def totals(probe: LineOperators) -> LineOperations:
    (found,) = probe.totals(9)
    assert isinstance(found, LineOperations)
    return found


def test_a_step_that_was_seen_in_part_counts_as_one() -> None:
    """Without it a step of many thousand operators has none: its window ends before the step does."""
    host: Any = SimpleNamespace(ledger=SimpleNamespace(listeners=[], located=locate), sampled_steps=0, tick=1)
    probe = LineOperators(host)
    probe.install()
    (hear,) = host.ledger.listeners

    def dispatched() -> None:  # as the ledger calls it: two frames below the operator
        hear(None, (), None, None)

    for _ in range(5):
        dispatched()
    probe.window_closed(1, 0, SimpleNamespace(steps=0), False)
    assert [(one.place.path, one.count) for one in totals(probe).lines] == [(__file__, 5)]
    assert (totals(probe).sampled, totals(probe).cut) == (1, 1)
    host.sampled_steps = 2
    probe.window_closed(3, 0, SimpleNamespace(steps=2), False)
    assert (totals(probe).sampled, totals(probe).cut) == (3, 1)


def test_gradients_that_autograd_joins_are_not_joined_by_the_programs_line() -> None:
    """A graph that grows has ever more to join, on the line of the backward pass."""
    host: Any = SimpleNamespace(ledger=SimpleNamespace(listeners=[], located=locate), sampled_steps=1, tick=1)
    probe = LineOperators(host)
    probe.install()
    (hear,) = host.ledger.listeners

    def join(gradient: torch.Tensor) -> None:
        hear(torch.ops.aten.cat.default, (), {}, gradient)

    leaf = torch.ones(3, requires_grad=True)
    leaf.register_hook(join)
    (leaf * 2).sum().backward()
    assert [(one.count, one.joined) for one in totals(probe).lines] == [(1, [])]
    join(leaf)
    assert [one.joined for one in totals(probe).lines if one.joined] == [[12]]


def test_what_goes_through_a_tensor_reads_its_elements() -> None:
    """`for x in t`, `sum(t)`, `max(t)`; but neither rows nor a call of `unbind` by the program."""
    ledger = Ledger()
    host: Any = SimpleNamespace(ledger=ledger, sampled_steps=1, tick=1)
    LineOperators(host).install()
    (probe,) = (listener.__self__ for listener in ledger.listeners)
    vector, rows = torch.ones(40), torch.ones(40, 100)
    with ledger:
        sum(vector)
        for _ in vector:
            pass
        sum(rows)
        vector.unbind()
    assert [one.reads for one in sorted(totals(probe).lines, key=lambda one: one.place.line)] == [40, 40, 0, 0]


def test_a_line_that_calls_a_module_is_told() -> None:
    ledger = Ledger()
    host: Any = SimpleNamespace(ledger=ledger, sampled_steps=1, tick=1)
    LineOperators(host).install()
    (probe,) = (listener.__self__ for listener in ledger.listeners)
    layer, row = torch.nn.Linear(2, 2), torch.ones(2)
    with ledger:
        row * 2
        layer(row)
    lines = sorted(totals(probe).lines, key=lambda one: one.place.line)
    assert [one.modules for one in lines] == [False, True]
