"""Loops over many small modules of one shape are timed beside one product; those that need each other are not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hosts import ByHand
from torch import nn

from torchvet.probes.time import real_time
from torchvet.probes.time.row_calls import alike
from torchvet.recording.records.timing import RowCalls
from torchvet.recording.records.training import Unchecked

Tensor = torch.Tensor
torch.manual_seed(0)
X = torch.rand(4, 20, 6)
MAPS = nn.ModuleList(nn.Linear(6, 3) for _ in range(20))
PLAIN = nn.ModuleList(nn.Linear(6, 3, bias=False) for _ in range(20))
SQUARES = nn.ModuleList(nn.Linear(6, 6) for _ in range(20))
FROZEN = nn.ModuleList(nn.Linear(6, 3) for _ in range(20)).requires_grad_(False)
CONVS = nn.ModuleList(nn.Conv1d(20, 3, 1) for _ in range(20))
WIDTHS = nn.ModuleList(nn.Linear(6, 2 + n) for n in range(20))


def ended(outs: list[Tensor]) -> None:
    total: Any = torch.cat([out.flatten() for out in outs]).square().sum()
    total.backward()


def assigned() -> None:
    out = X.new_zeros(4, 20, 3)
    for i, m in enumerate(MAPS):
        out[:, i, :] = m(X[:, i, :])
    ended([out])


def stacked() -> None:
    ended([m(X[:, i]) for i, m in enumerate(PLAIN)])


def of_one_input() -> None:
    x = X[:, 0].clone().requires_grad_()
    ended([m(x) for m in MAPS])


def of_inputs_of_their_own() -> None:
    xs = [X[:, i].clone() for i in range(20)]
    ended([m(x).relu() for m, x in zip(MAPS, xs, strict=True)])


def deep() -> None:
    x = X
    for m in SQUARES:
        x = m(x)
    ended([x])


def residual() -> None:
    x = X
    for m in SQUARES:
        x = x + m(x).relu()
    ended([x])


def gated_by_the_one_before() -> None:
    gate, total = X[:, 0], X.new_zeros(4, 6)
    for i, m in enumerate(SQUARES):
        gate = m(X[:, i] * gate.sigmoid())
        total = total + gate
    ended([total])


def one_map_for_all() -> None:
    ended([MAPS[0](X[:, i]) for i in range(20)])


def a_few() -> None:
    ended([m(X[:, i]) for i, m in enumerate(MAPS[:8])])


def of_several_widths() -> None:
    ended([m(X[:, i]) for i, m in enumerate(WIDTHS)])


def frozen() -> None:
    torch.stack([m(X[:, i]) for i, m in enumerate(FROZEN)])


def without_gradients() -> None:
    with torch.no_grad():
        torch.stack([m(X[:, i]) for i, m in enumerate(MAPS)])


def other_modules() -> None:
    ended([m(X) for m in CONVS])


def seen(run: Callable[[], None], monkeypatch: pytest.MonkeyPatch, how: str = "finished") -> list[Any]:
    monkeypatch.setattr(real_time, "_A_STEP", 0.0)
    host: Any = ByHand()
    host.elapsed, host.clock = float, SimpleNamespace(main_steps=1)
    probe = alike.ModulesAlikeProbe(host)
    probe.install()
    host.sampling = True
    host.ledger.enter()
    run()
    host.ledger.leave()
    assert host.ledger.broken is None
    probe.boundary(1, "training")
    host.sampled_steps = 1
    probe.last_look(how, None)
    return list(host.written)


@pytest.mark.parametrize("run", [assigned, stacked, of_one_input, of_inputs_of_their_own])
def test_maps_that_could_be_one_product(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (record,) = seen(run, monkeypatch)
    assert isinstance(record, RowCalls)
    assert (record.modules, record.rows, record.timed, record.loops, record.sampled) == (20, 20, 20, 1, 1)
    assert record.place.function.endswith(run.__name__) or "<" in record.place.function
    assert record.differentiated == "summed" and 0 < record.late <= 1
    assert 0 < record.together < 20 * record.one


@pytest.mark.parametrize(
    "run",
    [
        deep, residual, gated_by_the_one_before, one_map_for_all, a_few, of_several_widths, frozen,
        without_gradients, other_modules,
    ],
)  # fmt: skip
def test_maps_that_need_each_other_or_are_none(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(run, monkeypatch) == []


def test_how_a_loop_is_timed_is_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(alike, "timed", asked.append)
    for run in (assigned, stacked, of_one_input):
        seen(run, monkeypatch)
    assert [(one.selected, one.shared, one.assigned, one.learned, one.biased) for one in asked] == [
        (True, False, True, False, True),
        (True, False, False, False, False),
        (False, True, False, True, True),
    ]


def test_what_is_not_timed_is_said_and_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    (record,) = seen(assigned, monkeypatch, "error")
    assert isinstance(record, Unchecked)
    before, weights = torch.get_rng_state(), MAPS[0].weight.clone()  # type: ignore[operator]
    seen(assigned, monkeypatch)
    assert torch.equal(before, torch.get_rng_state()) and torch.equal(weights, MAPS[0].weight)  # type: ignore[arg-type]
