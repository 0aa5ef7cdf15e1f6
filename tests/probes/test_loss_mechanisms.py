"""Probabilities over the batch, norms of gradient penalties, terms without a graph: found, and their look-alikes."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import torchvet

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
net = {net}
frozen = nn.Sequential(nn.Linear(6, 5)).requires_grad_(False)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(12):
    x = torch.randn(8, {features})
    y = torch.randint(0, 5, (8,))
    {body}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LINEAR, CONVOLUTION = "nn.Sequential(nn.Linear(6, 5))", "nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Flatten())"
POINTS = "nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))"
GRADIENT = (
    "x.requires_grad_(); out = {out}; "
    "g, = torch.autograd.grad(out, x, torch.ones_like(out), create_graph=True); loss = "
)


def codes(net: str, features: str, body: str, folder: Path) -> list[str]:
    """Warnings of the three rules."""
    path = folder / "train.py"
    path.write_text(HEAD.format(net=net, features=features, body=body))
    with torchvet.watch(record=folder / "run.vet") as watch:
        runpy.run_path(str(path), run_name="__main__")
    assert watch.report is not None
    mine = [f for f in watch.report.findings if f.code in ("NUM112", "NUM114", "TRN115")]
    assert all(f.location is not None and f.location.line == 13 for f in mine)
    return [f"{f.code} {f.severity}" for f in mine]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("loss = F.nll_loss(net(x).log_softmax(0), y)", True),
        ("loss = F.nll_loss(net(x).softmax(0).log(), y)", True),
        ("loss = F.nll_loss(net(x).log_softmax(1), y)", False),
        ("loss = F.cross_entropy(net(x), y)", False),
        # The classes come last, before a view puts them in place.
        ("loss = F.nll_loss(net(x).view(2, 4, 5).log_softmax(-1).transpose(1, 2), y.view(2, 4))", False),
        ("loss = F.nll_loss(net(x).view(2, 5, 4).log_softmax(2), y.view(2, 4))", True),
        ("loss = F.nll_loss(net(x).view(2, 4, 5).log_softmax(-1).view(-1, 5), y)", False),
        ("loss = F.nll_loss(net(x[:1])[0].log_softmax(0), y[0])", False),
        ("loss = (net(x).softmax(0) * net(x)).sum()", False),
    ],
)
def test_probabilities_over_the_batch(body: str, found: bool, tmp_path: Path) -> None:
    assert codes(LINEAR, "6", body, tmp_path) == ["NUM112 warning"] * found


@pytest.mark.parametrize(
    ("penalty", "found"),
    [
        ("((g.norm(2, dim=1) - 1) ** 2).mean()", True),
        ("((torch.linalg.norm(g, 2, dim=1) - 1) ** 2).mean()", True),
        ("((g.pow(2).sum(1).add(1e-12).sqrt() - 1) ** 2).mean()", True),
        ("((1 - (g * g).sum((1, 2)).sqrt()) ** 2).mean()", True),
        ("((g.norm() - 1) ** 2).mean()", True),
        ("((g.flatten(1).norm(2, dim=1) - 1) ** 2).mean()", False),
        ("((g.view(8, -1).norm(dim=1) - 1) ** 2).mean()", False),
        ("((g.norm(2, dim=(1, 2, 3)) - 1) ** 2).mean()", False),
        ("((g.pow(2).sum((1, 2, 3)).sqrt() - 1) ** 2).mean()", False),
        ("g.pow(2).sum(1).mean()", False),
        ("F.relu(g.norm(2, dim=1)).mean()", False),
    ],
)
def test_norms_of_penalties(penalty: str, found: bool, tmp_path: Path) -> None:
    body = GRADIENT.format(out="net(x).sum(1, keepdim=True)") + penalty
    assert codes(CONVOLUTION, "2, 4, 4", body, tmp_path) == ["NUM114 warning"] * found


def test_a_field_has_its_norms_at_points(tmp_path: Path) -> None:
    body = GRADIENT.format(out="net(x)") + "((g.norm(2, dim=-1) - 1) ** 2).mean()"
    assert codes(POINTS, "16, 3", body, tmp_path) == []


@pytest.mark.parametrize(
    ("term", "found"),
    [
        ("F.mse_loss(frozen(x), frozen(x))", "warning"),
        ("100 * nn.KLDivLoss(log_target=True)(frozen(x).log_softmax(1), frozen(x).log_softmax(1)) / 2", "warning"),
        ("F.mse_loss(net(x).detach(), net(x).detach())", "warning"),
        ("(frozen(x).softmax(1) * frozen(x).log_softmax(1)).sum()", "info"),
        ("F.mse_loss(net(x), frozen(x))", ""),
        ("sum(p.pow(2).sum() for p in frozen.parameters())", ""),
        ("x.pow(2).mean()", ""),
        ("torch.zeros(())", ""),
        ("0.1", ""),
        ("F.mse_loss(net(x), frozen(x)).detach()", ""),
    ],
)
def test_terms_without_a_graph(term: str, found: str, tmp_path: Path) -> None:
    body = f"loss = F.cross_entropy(net(x), y) + {term}"
    assert codes(LINEAR, "6", body, tmp_path) == ([f"TRN115 {found}"] if found else [])


def test_a_sum_that_does_not_go_backward_is_none_of_its_matter(tmp_path: Path) -> None:
    body = "loss = F.cross_entropy(net(x), y); shown = loss + F.mse_loss(frozen(x), frozen(x))"
    assert codes(LINEAR, "6", body, tmp_path) == []
