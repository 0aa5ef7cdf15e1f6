"""Many backward passes of one line through one graph are counted; those through graphs of their own are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from example_runs import RECORDING, forked
from hosts import ByHand, entered
from torch import Tensor, nn

from torchvet.probes.base import frames, graphs
from torchvet.probes.time import repeated_passes
from torchvet.probes.time.repeated_passes import RepeatedPassesProbe
from torchvet.recording import read
from torchvet.recording.records.timing import RepeatedPasses


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> RepeatedPassesProbe:
    monkeypatch.setitem(frames._owner_of_file, __file__, frames.USER)
    host: Any = ByHand()
    host.sampling = True
    return RepeatedPassesProbe(host)


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 12))


def counted(probe: RepeatedPassesProbe) -> list[RepeatedPasses]:
    probe.boundary(1, "training")
    return [*probe.totals(1)]


def rows(probe: RepeatedPassesProbe, outputs: list[Tensor], late: graphs.Late = graphs.never) -> None:
    for output in outputs:
        probe.graph_entered(entered(output, retain=True, is_grad=True, late=late))


def test_rows_of_one_output_are_passes_through_one_graph(probe: RepeatedPassesProbe, model: nn.Module) -> None:
    for _ in range(2):
        y = model(torch.rand(4))
        rows(probe, [y[i] for i in range(12)])
        probe.boundary(1, "training")
    (found,) = counted(probe)
    assert (found.steps, found.graphs, found.passes, found.is_grad, found.by_torch) == (2, 2, 24, True, False)
    assert found.nodes >= 4


def test_a_graph_for_each_sample_with_many_rows_each(probe: RepeatedPassesProbe, model: nn.Module) -> None:
    rows(probe, [y[i] for y in (model(torch.rand(4)), model(torch.rand(4))) for i in range(10)])
    (found,) = counted(probe)
    assert (found.graphs, found.passes) == (2, 20)


def test_a_few_losses_through_one_trunk_are_not_many(probe: RepeatedPassesProbe, model: nn.Module) -> None:
    rows(probe, list(model(torch.rand(4))[:7]))
    assert not counted(probe)


def test_graphs_of_their_own_are_not_one(probe: RepeatedPassesProbe) -> None:
    """Their weights are the same, also where these are computed themselves."""
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 8)), nn.Tanh(), nn.Linear(8, 1))
    with nn.utils.parametrize.cached():
        rows(probe, [model(torch.rand(4)).square().sum() for _ in range(20)])
    assert not counted(probe)


def test_an_inner_loop_that_differentiates_its_updates_is_none_over_rows(probe: RepeatedPassesProbe) -> None:
    model, x, means = nn.Linear(3, 3), torch.rand(5, 3, requires_grad=True), torch.rand(3, requires_grad=True) * 2
    for _ in range(40):
        energy = torch.tanh(model(x) - means).square().sum()
        rows(probe, [energy])
        (slope,) = torch.autograd.grad(energy, x, create_graph=True)
        x = x - 0.1 * slope
    assert not counted(probe)


def test_energies_that_share_what_they_are_conditioned_on_are_graphs_of_their_own(probe: RepeatedPassesProbe) -> None:
    encoder = nn.Sequential(*(nn.Linear(4, 4) for _ in range(20)))
    model, about = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), encoder(torch.rand(4))
    rows(probe, [model(torch.rand(4) + about).sum() for _ in range(20)])
    assert not counted(probe)


def test_unsampled_steps_and_graphs_that_there_is_no_time_for(probe: RepeatedPassesProbe, model: nn.Module) -> None:
    y = model(torch.rand(4))
    rows(probe, list(y), late=lambda: True)
    assert not counted(probe)
    probe.host.sampling = False  # type: ignore[misc]
    rows(probe, list(y))
    assert not counted(probe)


def test_steps_are_followed_up_to_a_number(
    probe: RepeatedPassesProbe, model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_passes, "_STEPS", 1)
    for _ in range(3):
        rows(probe, list(model(torch.rand(4))))
        probe.boundary(1, "training")
    assert [found.steps for found in counted(probe)] == [1]


PROGRAM = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 12))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(12):
    x = torch.rand(4)
    rows = torch.autograd.functional.jacobian(model, x, create_graph=True)
    torch.autograd.gradcheck(torch.tanh, torch.rand(9, dtype=torch.double, requires_grad=True))
    optimizer.zero_grad()
    rows.square().sum().backward()
    optimizer.step()
"""


def test_torchs_own_jacobian_is_named_and_its_check_is_meant(tmp_path: Path) -> None:
    forked(PROGRAM, tmp_path)
    (seen,) = read(tmp_path / RECORDING).ranks[0].latest(RepeatedPasses, "place")
    assert (seen.place.line, seen.by_torch, seen.passes) == (8, True, 12 * seen.steps)
