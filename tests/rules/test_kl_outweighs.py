"""TRN134: KL terms that are sums beside a mean, and such as have the same measure as it or a weight."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
beta = 0.001
"""
LOSS = """
def loss_of(x_hat, x, mu, logvar):
    {}
"""
KL = "torch.sum(1 + logvar - mu.pow(2) - logvar.exp())"
FAULTY = {
    "inline": LOSS.format(f"return F.mse_loss(x_hat, x) - 0.5 * {KL}"),
    "names": LOSS.format(
        f"BCE = F.binary_cross_entropy(x_hat, x.view(-1, 784))\n    KLD = {KL} * -0.5\n    return BCE + KLD, BCE, KLD"
    ),
    "element by element": LOSS.format(
        "e = mu.pow(2).add_(logvar.exp()).mul_(-1).add_(1).add_(logvar)\n"
        "    return nn.MSELoss()(x_hat, x) + torch.sum(e).mul_(-0.5)"
    ),
    "a deviation": LOSS.format(
        "std = torch.exp(logvar)\n    kl = 0.5 * (mu**2 + std**2 - 1 - 2 * torch.log(std)).sum()\n"
        "    loss = F.l1_loss(x_hat, x, reduction='mean')\n    loss += kl\n    return loss"
    ),
    "by hand": LOSS.format(f"return ((x_hat - x) ** 2).mean() + 1 * (-0.5 * {KL})"),
    "given by the caller": f"""
def loss_of(reconstruction, mu, logvar):
    return reconstruction - 0.5 * {KL}

criterion = nn.BCELoss()
for x in loader:
    x_hat, mu, logvar = model(x)
    loss_of(criterion(x_hat, x), mu, logvar).backward()
""",
    "two functions": f"""
def divergence(mu, logvar):
    return -0.5 * {KL}

def terms(x_hat, x, mu, logvar):
    return F.mse_loss(x_hat, x), divergence(mu, logvar)

def train(x_hat, x, mu, logvar):
    reconstruction, kl = terms(x_hat, x, mu, logvar)
    loss = reconstruction + kl
    loss.backward()
""",
    "a module": f"""
class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.mse = nn.MSELoss()
    def forward(self, x_hat, x, mu, logvar):
        self.kl = -0.5 * {KL}
        loss = self.mse(x_hat, x) + self.kl
        return {{"loss": loss, "kl": self.kl.detach()}}
""",
}
DIVERGENCE = """
from torch.distributions import Independent, Normal, kl_divergence

def loss_of(x_hat, x, q, p):
    prior = {}
    return F.mse_loss(x_hat, x) + kl_divergence(q, prior){}
"""
STANDARD = "Normal(0.0, torch.ones_like(q.scale))"
FAULTY |= {
    "of torch.distributions": DIVERGENCE.format(STANDARD, ".sum()"),
    "of joint distributions": DIVERGENCE.format(f"Independent({STANDARD}, 1)", ".sum()"),
}
HEALTHY = {
    "another prior": DIVERGENCE.format("p", ".sum()"),
    "a wide prior": DIVERGENCE.format("Normal(0, 10)", ".sum()"),
    "a mean of joint distributions": DIVERGENCE.format(f"Independent({STANDARD}, 1)", ".mean()"),
    "a divergence that is weighted": DIVERGENCE.format(STANDARD, ".sum() * beta"),
    "both are sums": LOSS.format(f"return F.mse_loss(x_hat, x, reduction='sum') - 0.5 * {KL}"),
    "as it was written once": LOSS.format(f"return F.mse_loss(x_hat, x, size_average=False) - 0.5 * {KL}"),
    "a criterion that is told later": "criterion = nn.MSELoss()\ncriterion.size_average = False\n"
    + LOSS.format(f"return criterion(x_hat, x) - 0.5 * {KL}"),
    "a weight": LOSS.format(f"return F.mse_loss(x_hat, x) + beta * -0.5 * {KL}"),
    "a small weight": LOSS.format(f"return F.mse_loss(x_hat, x) - 0.5 * {KL} * 1e-4"),
    "a weight of the reconstruction": LOSS.format(f"return 1000 * F.mse_loss(x_hat, x) - 0.5 * {KL}"),
    "divided": LOSS.format(f"kl = -0.5 * {KL}\n    kl /= x.numel()\n    return F.mse_loss(x_hat, x) + kl"),
    "multiplied in place": LOSS.format(f"kl = -0.5 * {KL}\n    kl.mul_(beta)\n    return F.mse_loss(x_hat, x) + kl"),
    "averaged": LOSS.format(
        "kl = -0.5 * torch.sum(1 + logvar - mu**2 - logvar.exp(), dim=1)\n    return F.mse_loss(x_hat, x) + kl.mean()"
    ),
    "a mean": LOSS.format(f"return F.mse_loss(x_hat, x) - 0.5 * {KL.replace('sum', 'mean')}"),
    "weighted where it counts": f"""
def terms(x_hat, x, mu, logvar):
    return F.mse_loss(x_hat, x), -0.5 * {KL}

def train(x_hat, x, mu, logvar):
    reconstruction, kl = terms(x_hat, x, mu, logvar)
    bound = reconstruction + kl
    loss = reconstruction + beta * kl
    loss.backward()
""",
    "another reconstruction": LOSS.format(f"return features(x_hat, x) + F.mse_loss(x_hat, x) - 0.5 * {KL}"),
    "another divergence": LOSS.format(
        "kl = 0.5 * ((logvar.exp() + (mu - x) ** 2) / beta.exp() - 1 + beta - logvar).sum()\n"
        "    return F.mse_loss(x_hat, x) + kl"
    ),
    "a log-probability": LOSS.format("return F.mse_loss(x_hat, x) - 0.5 * (mu.pow(2) / logvar.exp() + logvar).sum()"),
    "a root of what may be negative": LOSS.format("return F.mse_loss(x_hat, x) + ((mu - logvar - 2) ** 0.5).sum()"),
    "not differentiated": LOSS.format(f"with torch.no_grad():\n        return F.mse_loss(x_hat, x) - 0.5 * {KL}"),
}
RUN = """
import torch
from torch import nn
torch.manual_seed(0)
encoder, decoder = nn.Linear(36, 4), nn.Linear(2, 36)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.01)
data = {scale} * torch.randn(512, 2) @ torch.randn(2, 36)
for step in range(130):
    x = data[torch.randint(0, 512, (16,))]
    mu, logvar = encoder(x / {scale}).chunk(2, 1)
    x_hat = decoder(mu + torch.randn_like(mu) * torch.exp(0.5 * logvar))
    kl = {kl}
    loss = nn.functional.mse_loss(x_hat, x) + kl
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
WHOLE = "-0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())"
OF_TORCH = (
    "torch.distributions.kl_divergence(torch.distributions.Normal(mu, (logvar / 2).exp()), "
    "torch.distributions.Normal(0.0, 1.0)).sum()"
)
AVERAGED = "-0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1).mean()"


EXPLODES = RUN.replace("x / {scale}", "x * 1e4")


def suspected(text: str) -> list[str]:
    return [f.message for f in rule("TRN134").in_source(SourceFile("a.py", HEAD + text))]


@pytest.mark.parametrize("text", FAULTY.values(), ids=FAULTY)
def test_a_sum_beside_a_mean(text: str) -> None:
    assert len(suspected(text)) == 1


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY)
def test_the_same_measure_or_a_weight(text: str) -> None:
    assert suspected(text) == []


def test_the_reconstruction_becomes_a_sum() -> None:
    [found] = rule("TRN134").in_source(SourceFile("a.py", HEAD + FAULTY["a module"]))
    assert [edit.text for edit in found.remedy.edits] == ['reduction="sum"']
    assert not found.remedy.safe


def test_a_criterion_of_several_losses_is_left_alone() -> None:
    more = "\n    def other(self, y_hat, y):\n        return self.mse(y_hat, y)\n"
    [found] = rule("TRN134").in_source(SourceFile("a.py", HEAD + FAULTY["a module"] + more))
    assert found.remedy.edits == []


@pytest.mark.parametrize(
    ("kl", "scale", "expected"),
    [
        (WHOLE, 1, [("warning", "has collapsed")]),
        (OF_TORCH, 1, [("warning", "has collapsed")]),
        (AVERAGED, 0.1, [("warning", "has collapsed")]),
        (WHOLE, 100, [("info", "has not collapsed")]),
        (AVERAGED, 100, []),
    ],
)
def test_a_run_says_what_became_of_the_posterior(
    kl: str, scale: float, expected: list[tuple[str, str]], tmp_path: Path
) -> None:
    found = forked(RUN.format(kl=kl, scale=scale), tmp_path)
    assert found is not None
    mine = [f for f in found if f["code"] == "TRN134"]
    assert [f["severity"] for f in mine] == [severity for severity, _ in expected]
    assert all(words in f["message"] for f, (_, words) in zip(mine, expected, strict=True))


def test_what_is_not_finite_is_no_measure(tmp_path: Path) -> None:
    found = forked(EXPLODES.format(kl=WHOLE, scale=1), tmp_path)
    assert found is not None
    assert [f["evidence"] for f in found if f["code"] == "TRN134"] == ["suspected"]
