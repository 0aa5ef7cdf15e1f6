"""Who keeps a graph after backward, and whether anybody went through it again."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from hosts import ByHand, Knows, entered

from torchvet.probes.base import graphs
from torchvet.probes.base.backward import BackwardProbe
from torchvet.recording.records.training import BackwardUse

FLOAT = 4


def loss_of(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x).sum()


def backward(probe: BackwardProbe, tick: int, *losses: torch.Tensor, retain: bool = False, create: bool = False,
             is_grad: bool = False, known: tuple[int, ...] = ()) -> None:  # fmt: skip
    host: Any = probe.host
    host.tick, host.known = tick, Knows(*known)
    probe.graph_entered(entered(list(losses), retain, create, is_grad))
    try:
        torch.autograd.backward(list(losses), retain_graph=retain or create, create_graph=create)
    except BaseException:
        probe.backward_failed()
        raise
    probe.backward_ended(is_grad)


def observed() -> BackwardProbe:
    """The probe, told of events by hand."""
    return BackwardProbe(ByHand(Knows()))  # type: ignore[arg-type]


def leaf() -> torch.Tensor:
    return torch.ones(100, requires_grad=True)


def only(probe: BackwardProbe) -> BackwardUse:
    (record,) = probe.totals(1)
    return record


def test_plain_backward_leaves_no_record() -> None:
    probe, x = observed(), leaf()
    for tick in range(3):
        backward(probe, tick, loss_of(x))
        probe.settle(tick, "training")
    assert probe.totals(1) == []


def test_a_graph_kept_and_never_used_is_judged_so() -> None:
    probe, x = observed(), leaf()
    for tick in range(1, 8):
        backward(probe, tick, loss_of(x), retain=True)
        probe.settle(tick, "training")
    record = only(probe)
    assert (record.flag, record.calls, record.reused) == ("retain_graph", 7, 0)
    assert record.judged >= 3
    assert record.place.path == __file__ and record.held >= 100 * FLOAT


def test_a_graph_that_is_used_again_was_kept_for_a_reason() -> None:
    probe, x = observed(), leaf()
    for tick in range(1, 6):
        hidden = torch.exp(x)
        backward(probe, tick, hidden.sum(), retain=True)
        backward(probe, tick, hidden.mean())
        probe.settle(tick, "training")
    record = only(probe)
    assert record.reused == record.judged >= 4


def test_a_graph_that_is_used_two_steps_later_counts_as_used() -> None:
    probe, x = observed(), leaf()
    hidden = torch.exp(x)
    backward(probe, 1, hidden.sum(), retain=True)
    probe.settle(1, "training")
    probe.settle(2, "training")
    backward(probe, 3, hidden.mean())
    probe.settle(9, "training")
    assert (only(probe).judged, only(probe).reused) == (1, 1)


@pytest.mark.filterwarnings("ignore:Using backward")
def test_create_graph_of_backward_is_told_apart_and_grad_is_not_reported() -> None:
    probe, x = observed(), leaf()
    backward(probe, 1, loss_of(x), create=True)
    assert only(probe).flag == "create_graph"
    x.grad = None  # a cycle that nothing else breaks
    other = observed()
    other.graph_entered(entered(loss_of(x), True, True, True))
    other.backward_ended(True)
    assert other.totals(1) == []


def test_known_storages_are_not_counted_as_held() -> None:
    probe, x = observed(), leaf()
    loss = (x * x).sum()
    key = x.untyped_storage()._cdata
    backward(probe, 1, loss, retain=True, known=(key,))
    assert only(probe).held <= 100 * FLOAT


def test_the_probe_keeps_no_graph_alive() -> None:
    probe, x = observed(), leaf()
    hidden = torch.exp(x)
    watch = weakref.ref(hidden.untyped_storage())
    backward(probe, 1, hidden.sum(), retain=True)
    del hidden
    gc.collect()
    assert watch() is None


def test_a_backward_that_fails_keeps_no_graph_alive() -> None:
    """Out of memory in backward: what the program then frees must be free."""

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, t: torch.Tensor) -> torch.Tensor:
            return t.clone()

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            raise MemoryError

    probe, x = observed(), leaf()
    hidden = torch.exp(x)
    watch = weakref.ref(hidden.untyped_storage())
    with pytest.raises(MemoryError):
        backward(probe, 1, Fails.apply(hidden).sum(), retain=True)
    del hidden
    gc.collect()
    assert watch() is None


def test_sequence_numbers_outlive_the_graph() -> None:
    x = leaf()
    hidden = torch.exp(x)
    below = graphs.sequences_below([hidden.sum().grad_fn])
    assert hidden.grad_fn is not None and hidden.grad_fn._sequence_nr() in below
    assert graphs.sequences_below([torch.exp(x).grad_fn]).isdisjoint(below)


def test_many_calls_from_one_line_make_one_record() -> None:
    probe, x = observed(), leaf()
    for tick in range(1, 200):
        backward(probe, tick, loss_of(x), retain=True)
        probe.settle(tick, "training")
    record = only(probe)
    assert record.calls == 199 and 6 <= record.judged <= 20, "judged at first, then ever more rarely"


def test_losses_without_a_graph_are_left_alone() -> None:
    probe = observed()
    probe.graph_entered(entered(torch.ones(1), retain=True))
    probe.backward_ended(False)
    assert all(r.judged == 0 for r in probe.totals(1))


def test_a_graph_that_there_was_no_time_to_follow_is_not_judged_and_that_is_said() -> None:
    """Silence would say that the graphs were needed."""
    probe, x, said = observed(), leaf(), []
    for tick in range(1, 140):
        loss, over = loss_of(x), tick < 7
        probe.host.tick, probe.host.seconds = tick, 0.0 if over else 10.0  # type: ignore[attr-defined,misc]
        probe.graph_entered(entered([loss], retain=True, late=graphs.within(probe.host.graph_seconds())))
        loss.backward(retain_graph=True)
        probe.backward_ended(False)
        probe.settle(tick, "training")
        if tick == 6:
            said = list(probe.unchecked())
            assert (only(probe).judged, only(probe).held) == (0, 0)
    assert ["retain_graph" in gap.check for gap in said] == [True]
    assert only(probe).judged >= 3 and not list(probe.unchecked()), "there was time later on"


def test_a_count_of_bytes_that_was_cut_short_is_not_judged_by() -> None:
    probe, x = observed(), leaf()
    for tick in range(1, 7):
        loss = loss_of(x)
        for _ in range(1100):  # the time is asked for at every 1024th node
            loss = loss + 1
        probe.host.tick, probe.host.seconds = tick, 0.0  # type: ignore[attr-defined,misc]
        probe.graph_entered(entered([loss], retain=True))
        loss.backward(retain_graph=True)
        probe.backward_ended(False)
        probe.settle(tick, "training")
    assert only(probe).judged == 0 and list(probe.unchecked())
