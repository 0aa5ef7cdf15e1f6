"""Calls that are given all of the call before and a little more are found; what a cache would save is told from their
times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hosts import ByHand
from torch import nn

from torchvet.probes.internals.module_calls import ModuleCalls
from torchvet.probes.time.prefixes.columns import Call, Rows, begins_like, cost, fitted, grown
from torchvet.probes.time.prefixes.growing import GrowingPrefixes

Tensor = torch.Tensor


class Mixed(nn.Module):
    """Each column is a sum over earlier columns, or over all of them."""

    def __init__(self, causal: bool = True) -> None:
        super().__init__()
        self.table, self.head, self.causal = nn.Embedding(16, 8), nn.Linear(8, 16), causal

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        mixed = x.cumsum(1) if self.causal else x.sum(1, keepdim=True) + x
        found: Tensor = self.head(mixed)
        return found


class Wrapped(nn.Module):
    """The loop is in a module, and the model is given its input by name."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ByName()

    def forward(self, ids: Tensor) -> Tensor:
        for _ in range(12):
            ids = longer(ids, self.model(ids=ids))  # the line
        return ids


class ByName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Mixed()

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.inner(ids)
        return found


def longer(ids: Tensor, logits: Tensor) -> Tensor:
    return torch.cat([ids, logits[:, -1:].argmax(-1)], 1)


def sampled(model: nn.Module, ids: Tensor, turns: int = 12, given: Callable[[Tensor], Tensor] = lambda x: x) -> None:
    for _ in range(turns):
        ids = longer(ids, model(given(ids)))


def forecast(model: nn.Module, x: Tensor, dim: int) -> None:
    for _ in range(12):
        out = model(x)
        x = torch.cat([x, out.narrow(dim, out.shape[dim] - 1, 1)], dim)


def started() -> tuple[GrowingPrefixes, Any]:
    host: Any = ByHand()
    probe = GrowingPrefixes(host)
    probe.install()
    return probe, host


def seen(run: Callable[[], Any]) -> list[Any]:
    """What the probe writes of one sampled step."""
    probe, host = started()
    host.ledger.enter()
    run()
    host.ledger.leave()
    assert host.ledger.broken is None
    probe.boundary(1, "training")
    host.sampled_steps = 1
    found = list(probe.totals(1))
    probe.remove()
    return found


@torch.no_grad()
def test_a_prefix_that_is_given_again() -> None:
    (one,) = seen(lambda: sampled(Mixed(), torch.ones(2, 5, dtype=torch.long)))
    assert (one.module, one.place.function) == ("Mixed", "sampled")
    assert (one.row, one.calls, one.steps, one.sampled) == (12, 12, 1, 1)
    assert (one.columns, one.again) == (sum(range(5, 17)), sum(range(5, 16)))
    assert one.same == one.compared > 4 and one.seconds >= one.saved >= 0


@torch.no_grad()
def test_sequences_of_numbers() -> None:
    recurrent, narrow = nn.LSTM(4, 4, batch_first=True), nn.Conv1d(4, 4, 1)
    (one,) = seen(lambda: forecast(nn.Sequential(First(recurrent)), torch.rand(2, 6, 4), 1))
    assert one.same == one.compared > 4
    (one,) = seen(lambda: forecast(narrow, torch.rand(2, 4, 6), 2))
    assert one.same == one.compared > 4 and one.module == "Conv1d"


class First(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x)[0]
        return found


@torch.no_grad()
def test_the_line_of_the_loop_is_named() -> None:
    model = Wrapped()
    (one,) = seen(lambda: model(torch.ones(2, 5, dtype=torch.long)))
    assert (one.module, one.place.function) == ("ByName", "Wrapped.forward")


@torch.no_grad()
def test_a_model_whose_earlier_columns_change() -> None:
    (one,) = seen(lambda: sampled(Mixed(causal=False), torch.ones(2, 5, dtype=torch.long)))
    assert one.compared > 4 and one.same == 0


@pytest.mark.parametrize("given", [lambda ids: ids[:, -4:], lambda ids: ids[:, -1:], lambda ids: ids.flip(1)])
@torch.no_grad()
def test_other_inputs(given: Any) -> None:
    assert seen(lambda: sampled(Mixed(), torch.arange(6).repeat(2, 1), given=given)) == []


@torch.no_grad()
def test_lengths_that_grow_by_chance() -> None:
    model = Mixed()
    assert seen(lambda: [model(torch.randint(16, (2, n))) for n in range(20, 40)]) == []
    assert seen(lambda: sampled(model, torch.ones(2, 5, dtype=torch.long), turns=6)) == []


@torch.no_grad()
def test_weights_that_change_meanwhile() -> None:
    probe, host = started()
    model, ids = Mixed(), torch.arange(40).remainder(16).repeat(2, 1)
    host.ledger.enter()
    for n in range(10, 40):
        model(ids[:, :n])
        probe.boundary(n, "training")
    host.ledger.leave()
    probe.window_closed(40, 0, None, True)
    assert list(probe.totals(40)) == []
    probe.remove()


@torch.no_grad()
def test_calls_that_do_not_grow_take_a_part_of_the_line() -> None:
    model, ids = Mixed(), torch.ones(2, 5, dtype=torch.long)

    def run(window: int) -> float:
        probe, host = started()
        host.ledger.enter()
        for _ in range(2):
            sampled(model, ids, 30, lambda ids: ids[:, -window:])
            probe.boundary(1, "training")
        host.ledger.leave()
        (one,) = probe.totals(1)
        probe.remove()
        return float(one.again / one.columns)

    # 12 calls grow, and 18 have 16 columns; those of the first row are not known yet.
    assert run(16) < 0.75 < run(64)


@torch.no_grad()
def test_calls_of_other_steps_are_timed() -> None:
    probe, host = started()
    model, ids = Mixed(), torch.ones(2, 5, dtype=torch.long)
    host.ledger.enter()
    sampled(model, ids)
    host.ledger.leave()
    probe.boundary(1, "training")
    for _ in range(3):
        sampled(model, ids)
    (one,) = probe.totals(1)
    assert one.timed == 36 and one.calls == 12
    probe.remove()
    assert type(model).__call__ is nn.Module.__call__


def test_shapes() -> None:
    assert grown((2, 5), (2, 6)) == 1 and grown((5, 2, 8), (7, 2, 8)) == 0
    for before, now in [((2, 5), (2, 5)), ((2, 5), (2, 4)), ((2, 5), (3, 6)), ((2, 5), (2, 15)), ((), (2,))]:
        assert grown(before, now) is None


def test_outputs_are_compared_up_to_rounding() -> None:
    out = torch.rand(5, 8)
    assert begins_like(out[:4], out + 1e-6) and begins_like(out[:4], out + 0.01) is False
    assert begins_like(out[:4], out[:, :7]) is None


def test_a_busy_moment_does_not_count() -> None:
    points = [(float(x), 2.0 * x + 3.0 + (100.0 if x == 7 else 0.0)) for x in range(5, 30)]
    assert fitted(points) == pytest.approx((2.0, 3.0))
    assert fitted([(4.0, 1.0)]) == (0.0, 1.0)


def test_what_a_cache_would_save() -> None:
    lengths = Counter({(n, 1): 1 for n in range(21, 41)})
    # 10 ms a call and 1 ms a column: of 20 columns after the first 20 ms and more.
    calls = [Call(n, 0.010 + 0.001 * n, 0.0, 100, 0) for n in range(21, 41)]
    seconds, saved = cost(calls, lengths, Rows())
    assert seconds == pytest.approx(sum(0.010 + 0.001 * n for n in range(21, 41)))
    assert saved == pytest.approx(0.9 * sum(0.001 * (n - 1) for n in range(21, 41)))
    # A line that would come to less than nothing: what the operators take of anything is left.
    steep = [Call(n, 0.002 * n - 0.03, 0.0, 1000, 0) for n in range(21, 41)]
    seconds, saved = cost(steep, lengths, Rows())
    assert seconds - saved >= 20 * 1000 * 5e-6 * 0.9
    # Attention's time grows with the square: with a cache, with the columns.
    calls = [Call(n, 0.0, 1e-5 * n * n, 0, 0) for n in range(21, 41)]
    assert cost(calls, lengths, Rows())[1] == pytest.approx(0.9 * sum(1e-5 * n * (n - 1) for n in range(21, 41)))
    flat = [Call(n, 0.010, 0.0, 100, 0) for n in range(21, 41)]
    assert cost(flat, lengths, Rows())[1] == 0


def test_rows_of_calls() -> None:
    rows = Rows()
    for number, length in enumerate([3, *range(10, 21), 10, 11, 30, *range(5, 16)]):
        rows.add((2, length), 0.5 * number)
    rows.end()
    # Two that grow are chance.
    assert rows.lengths == Counter({(10, 10): 1, (5, 5): 1, **{(n, 1): 1 for n in range(6, 21)}}) + Counter(
        {(n, 1): 1 for n in range(11, 16)}
    )
    assert set(rows.seconds) == set(range(5, 20)) and {one for times in rows.seconds.values() for one in times} == {0.5}


def test_two_follow_one_module() -> None:
    module, heard = nn.Linear(2, 2), []
    one, other = ModuleCalls(), ModuleCalls()
    for name, calls in (("one", one), ("other", other)):
        calls.follow(module, lambda args, kwargs, name=name: name, lambda token, output: heard.append(token))  # type: ignore[misc]
    module(torch.ones(2))
    one.close()
    module(torch.ones(2))
    other.close()
    module(torch.ones(2))
    assert heard == ["other", "one", "other"] and type(module).__call__ is nn.Module.__call__
