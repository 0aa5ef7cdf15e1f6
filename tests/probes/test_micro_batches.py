"""Which sums of losses could have gone backward one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from torchvet.probes.base import graphs
from torchvet.probes.memory.micro_batches import _alike, _independent, _one_after_the_other, _terms

_X = torch.randn(32, 8)


def _net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))


def _summed(net: nn.Module) -> torch.Tensor:
    total = torch.zeros(())
    for _ in range(4):
        total = total + net(_X).square().mean() / 4
    return total


def _mean_of_a_stack(net: nn.Module) -> torch.Tensor:
    return torch.stack([net(_X).square().mean() for _ in range(4)]).mean()


def _divided_at_the_end(net: nn.Module) -> torch.Tensor:
    return sum((net(_X).square().mean() for _ in range(4)), torch.zeros(())) / 4


def _rollout(net: nn.Module) -> torch.Tensor:
    values = [net(_X).mean() for _ in range(4)]
    return torch.stack([-value * reward for value, reward in zip(values, (1.0, 2.0, 3.0, 4.0), strict=True)]).sum()


def _heads(net: nn.Module) -> torch.Tensor:
    shared = net(_X)
    return sum((shared.pow(power).mean() for power in (1, 2, 3, 4)), torch.zeros(()))


def _one_batch(net: nn.Module) -> torch.Tensor:
    return net(_X).square().mean() * 0.5


def _critic(net: nn.Module) -> torch.Tensor:
    between = _X.clone().requires_grad_()
    (slope,) = torch.autograd.grad(net(between).sum(), between, create_graph=True)
    return net(_X).mean() - net(_X + 1).square().mean() + (slope.norm(dim=1) - 1).square().mean()


def _product(net: nn.Module) -> torch.Tensor:
    return net(_X).mean() * net(_X).mean() * net(_X).mean()


def _parts(loss: torch.Tensor, net: nn.Module) -> int:
    weights = {p.untyped_storage()._cdata for p in net.parameters()}
    found = _independent(_terms(loss.grad_fn), weights, graphs.never)
    assert found is not None
    alike = _alike(found)
    return len(alike) if _one_after_the_other(alike) else 0


@pytest.mark.parametrize("loss", [_summed, _mean_of_a_stack, _divided_at_the_end])
def test_micro_batches_are_told_apart(loss: Callable[[nn.Module], torch.Tensor]) -> None:
    net = _net()
    assert _parts(loss(net), net) == 4


@pytest.mark.parametrize("loss", [_rollout, _heads, _one_batch, _critic, _product])
def test_what_needs_one_backward_pass_is_one(loss: Callable[[nn.Module], torch.Tensor]) -> None:
    net = _net()
    assert _parts(loss(net), net) <= 1


def test_each_saves_its_share() -> None:
    net = _net()
    weights = {p.untyped_storage()._cdata for p in net.parameters()}
    found = _independent(_terms(_summed(net).grad_fn), weights, graphs.never)
    assert found is not None
    # All but the first save their own activations only; the first is credited with the input, which they share.
    assert len({part.bytes for part in found[1:]} | {found[0].bytes - _X.numel() * 4}) <= 2
    assert min(part.bytes for part in found) > 32 * 16 * 4


def test_a_graph_that_takes_too_long_is_not_judged() -> None:
    net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(200)))
    assert _independent(_terms(net(_X).mean().grad_fn), set(), lambda: True) is None
