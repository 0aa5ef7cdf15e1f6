"""What leaves the graph and was all that the parameters led to, told from what is detached on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from autocast_runs import observed

from torchvet.diagnosis.diagnose import diagnose
from torchvet.recording import Recording
from torchvet.recording.records.numeric import CutOutput

F = torch.nn.functional
nn = torch.nn


def findings(model: nn.Module, loss: Callable[[Any, Any], Any], also: Iterable[nn.Parameter] = ()) -> Any:
    """What is said of TRN of twelve steps, and the last record of each line."""
    optimizer = torch.optim.SGD([*model.parameters(), *also], lr=0.01)
    with observed() as run:
        for _ in range(12):
            optimizer.zero_grad()
            loss(model, torch.randn(16, 8)).backward()
            optimizer.step()
    seen = {r.place: r for r in run.rank.all(CutOutput)}
    return diagnose(Recording([run.rank]), select=["TRN"]).findings, list(seen.values())


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def penalty(model: Any) -> Any:
    return 1e-3 * model[2].bias.square().sum()


def through_numpy(model: Any, x: Any) -> Any:
    scaled = torch.from_numpy(3.0 * model(x).detach().numpy())
    return F.mse_loss(scaled, x.sum(1, keepdim=True)) + penalty(model)


def through_a_number(model: Any, x: Any) -> Any:
    error = F.mse_loss(model(x), x.sum(1, keepdim=True))
    return penalty(model) + torch.tensor(error.item())


@pytest.mark.parametrize("loss", [through_numpy, through_a_number])
def test_only_a_penalty_reaches_a_parameter(loss: Any) -> None:
    said, seen = findings(network(), loss)
    (record,) = seen
    assert record.is_habit and (record.above, record.missed) == (4, 3)
    (finding,) = said
    assert (finding.code, finding.severity) == ("TRN106", "warning")
    assert finding.location.function == loss.__name__ and finding.location.path == __file__


def test_only_a_number_beside_the_network_is_reached() -> None:
    """A normalizing constant learns by itself, and what the network gives is detached."""
    torch.manual_seed(0)
    constant = nn.Parameter(torch.zeros(()))
    said, seen = findings(
        network(), lambda model, x: (constant + model(x).clone().detach()).square().mean(), [constant]
    )
    (record,) = seen
    assert record.is_habit and (record.above, record.missed) == (4, 4)
    (finding,) = said
    assert (finding.code, finding.severity) == ("TRN106", "warning")


def logged(model: Any, x: Any) -> Any:
    loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
    assert loss.item() == float(loss.detach().numpy())
    return loss


def stopped_on_one_side(model: Any, x: Any) -> Any:
    return F.mse_loss(model(x), model(x + 0.1).detach())


def straight_through(model: Any, x: Any) -> Any:
    hidden = model(x)
    return F.mse_loss(hidden + (hidden.round() - hidden).detach(), x.sum(1, keepdim=True)) + penalty(model)


def weighted(model: Any, x: Any) -> Any:
    """A few parameters are reached, and so are others behind what was detached: a value that weighs a policy."""
    return (model.head(x) * model.body(x).detach()).mean()


class Probe(nn.Module):
    """A backbone that is not to learn and was handed to the optimizer for simplicity."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 1)


def probed(model: Any, x: Any) -> Any:
    return F.mse_loss(model.head(model.body(x).detach()), x.sum(1, keepdim=True))


HEALTHY = {"logged": logged, "stopped on one side": stopped_on_one_side, "straight through": straight_through}


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_detached_on_purpose_is_none(name: str) -> None:
    said, seen = findings(network(), HEALTHY[name])
    assert said == [] == [r for r in seen if r.lost]


@pytest.mark.parametrize("loss", [probed, weighted])
def test_a_part_that_is_not_to_learn_is_no_warning(loss: Any) -> None:
    torch.manual_seed(0)
    said, seen = findings(Probe(), loss)
    assert [f.code for f in said if f.severity != "info"] == [] == seen


def test_two_networks_against_each_other() -> None:
    torch.manual_seed(0)
    maker, judge = nn.Linear(8, 8), nn.Linear(8, 1)
    ours, theirs = torch.optim.SGD(maker.parameters(), lr=0.01), torch.optim.SGD(judge.parameters(), lr=0.01)
    with observed() as run:
        for _ in range(12):
            made = maker(torch.randn(16, 8))
            theirs.zero_grad()
            judge(made.detach()).mean().backward()
            theirs.step()
            ours.zero_grad()
            judge(made).mean().neg().backward()
            ours.step()
    assert [f for f in diagnose(Recording([run.rank]), select=["TRN"]).findings if f.severity != "info"] == []
