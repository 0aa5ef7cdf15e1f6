"""NUM113, TRN118, TRN138: losses given no logarithms, layers that get no gradient or equal ones; and look-alikes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import RECORDING, forked

from torchvet.recording import read
from torchvet.recording.records.training import Unchecked

PROGRAM = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
truth = torch.randn(12, 5)

class Scale(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = nn.Parameter(torch.full((1, 5), by))
    def forward(self, x):
        return x * self.by

class Parts(nn.Module):
    def __init__(self, enter, leave):
        super().__init__()
        self.used, self.masked = nn.Linear(enter, leave), nn.Linear(enter, leave)
    def forward(self, x):
        return torch.stack([self.used(x), 0 * self.masked(x)]).sum(0)

class Low(nn.Linear):
    def __init__(self, enter, leave):
        super().__init__(enter, leave)
        self.a, self.b = nn.Parameter(torch.randn(3, enter) * 0.1), nn.Parameter(torch.zeros(leave, 3))
        self.weight.requires_grad_(False)
    def forward(self, x):
        return super().forward(x) + x @ self.a.T @ self.b.T

def constant(module, value=0.05):
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.constant_(part.weight, value)
            nn.init.zeros_(part.bias)

def shifted(module, by):
    with torch.no_grad():
        module.bias += by
    return module

if __name__ == "__main__":
    model = {model}
    {before}
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr={rate})
    step = 0
    for step in range(1, 25):
        x = torch.randn(48, 12)
        y = (x @ truth).argmax(1)
        z = model({given})
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"loss {{loss.item():.6f}}")
"""
NET = "nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 5))"
LOSS = "F.cross_entropy(z, y)"
SOFT = "F.one_hot(y, 5).float() * 0.9 + 0.02"
LINE = PROGRAM[: PROGRAM.index("{loss}")].count("\n") + 1
CALL = PROGRAM[: PROGRAM.index("{given}")].count("\n") + 1
Case = dict[str, Any]


def findings(tmp_path: Path, code: str, case: Case) -> list[dict[str, Any]]:
    values = {"model": NET, "loss": LOSS, "before": "pass", "given": "x", "rate": 0.01} | case
    found = forked(PROGRAM.format(**values), tmp_path)
    assert found is not None
    return [f for f in found if f["code"] == code]


NO_LOGARITHMS: dict[str, tuple[str, str]] = {
    "NLL of probabilities": ("F.nll_loss(z.softmax(1), y)", "probabilities"),
    "NLL of scores": ("F.nll_loss(z, y)", "numbers between"),
    "NLL, a module": ("nn.NLLLoss()(torch.softmax(z, -1), y)", "probabilities"),
    "KL of probabilities": (f"F.kl_div(F.softmax(z, 1), {SOFT}, reduction='batchmean')", "probabilities"),
    "KL of scores": (f"nn.KLDivLoss(reduction='sum')(z, {SOFT})", "numbers between"),
    "NLL of scores by hand": ("F.nll_loss(z @ torch.eye(5) + torch.ones(5), y)", "numbers between"),
    "KL, both in logarithms but the input": (f"F.kl_div(z.softmax(1), ({SOFT}))", "probabilities"),
    "pixels": ("F.nll_loss(z[..., None, None].softmax(1), y[:, None, None])", "probabilities"),
    "CTC of probabilities": (
        "F.ctc_loss(z.softmax(1)[:, None], y[None, :4], torch.tensor([48]), torch.tensor([4]))",
        "probabilities",
    ),
}
LOGARITHMS = {
    "log_softmax": "F.nll_loss(z.log_softmax(1), y)",
    "log of softmax": "F.nll_loss(z.softmax(1).log(), y)",
    "log of softmax and a little": "F.nll_loss((z.softmax(1) + 1e-8).log(), y)",
    "logsigmoid": "F.nll_loss(F.logsigmoid(z), y)",
    "cross entropy": LOSS,
    "cross entropy of pixels": "F.cross_entropy(z[..., None, None], y[:, None, None])",
    "KL": f"F.kl_div(z.log_softmax(1), {SOFT}, reduction='batchmean')",
    "KL of logarithms": f"F.kl_div(z.log_softmax(1), ({SOFT}).log(), log_target=True, reduction='sum')",
    "REINFORCE": "F.nll_loss(z.log_softmax(1) * torch.randn(48, 1), y)",
    "CTC": "F.ctc_loss(z.log_softmax(1)[:, None], y[None, :4], torch.tensor([48]), torch.tensor([4]))",
    "only looked at": f"{LOSS} + 0 * F.nll_loss(z.detach(), y)",
    "by hand": "-(z.softmax(1).gather(1, y[:, None]) + 1e-6).log().mean()",
    "mixture": "F.nll_loss(torch.logaddexp(z.log_softmax(1), z.flip(1).log_softmax(1)) - 0.6931, y)",
    "soft targets": f"F.cross_entropy(z, {SOFT})",
    "half": "F.nll_loss(z.bfloat16().log_softmax(1).float(), y)",
    "densities": "F.nll_loss(torch.distributions.Normal(z.mean(1, True) / 99, 0.1).log_prob(z * 0), y)",
    "densities of several numbers, and a prior": (
        "F.nll_loss(torch.distributions.Independent(torch.distributions.Normal(z[..., None].expand(48, 5, 2) / 99, 0.1)"
        ", 1).log_prob(torch.zeros(48, 5, 2)) + torch.tensor(0.2).log(), y)"
    ),
    "log of a sum and a little": "F.nll_loss((z.softmax(1) * 0.99 + 0.05).log(), y)",
    "weighted, in another shape": "F.nll_loss((z.log_softmax(1) * torch.randn(48, 1)).view(-1, 5), y)",
    "smoothed": "0.9 * F.nll_loss(z.log_softmax(1), y) - 0.1 * z.log_softmax(1).mean()",
}


@pytest.mark.parametrize("what", NO_LOGARITHMS)
def test_losses_of_no_logarithms(tmp_path: Path, what: str) -> None:
    loss, words = NO_LOGARITHMS[what]
    (found,) = findings(tmp_path, "NUM113", {"loss": loss})
    assert (found["severity"], found["location"]["line"]) == ("warning", LINE)
    assert f"is given {words}" in found["message"]


@pytest.mark.parametrize("what", LOGARITHMS)
def test_losses_of_logarithms(tmp_path: Path, what: str) -> None:
    assert not findings(tmp_path, "NUM113", {"loss": LOGARITHMS[what]})


DEAD: dict[str, Case] = {
    "bias": {"model": "nn.Sequential(shifted(nn.Linear(12, 16), -20), nn.ReLU(), nn.Linear(16, 5))"},
    "in place": {"model": "nn.Sequential(shifted(nn.Linear(12, 16), -20), nn.ReLU(True), nn.Linear(16, 5))"},
    "ReLU6, at its other end": {"model": "nn.Sequential(shifted(nn.Linear(12, 16), 40), nn.ReLU6(), nn.Linear(16, 5))"},
    "Hardsigmoid, at its ends": {
        "model": "nn.Sequential(shifted(nn.Linear(12, 16), 40), nn.Hardsigmoid(), nn.Linear(16, 5))",
    },
    "Hardswish": {"model": "nn.Sequential(shifted(nn.Linear(12, 16), -20), nn.Hardswish(), nn.Linear(16, 5))"},
    "regression": {
        "model": "nn.Sequential(nn.Linear(12, 16), nn.ReLU(), shifted(nn.Linear(16, 1), -9), nn.ReLU())",
        "loss": "F.mse_loss(z[:, 0], y.float())",
    },
}
ALIVE: dict[str, Case] = {
    "usual": {},
    "some units": {
        "model": "nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 5))",
        "before": "model[0].bias.data[:60] -= 20",
    },
    "leaky": {"model": "nn.Sequential(shifted(nn.Linear(12, 16), -20), nn.LeakyReLU(), nn.Linear(16, 5))"},
    "a hinge that is satisfied": {"loss": f"{LOSS} + F.relu(z - z - 1).mean()"},
    "a loss of 0": {"loss": "F.relu(-1 - z.abs()).mean()"},
    "frozen": {
        "model": "nn.Sequential(shifted(nn.Linear(12, 16), -20).requires_grad_(False), nn.ReLU(), nn.Linear(16, 5))"
    },
    "zeros at first": {"before": "nn.init.zeros_(model[2].weight)"},
    "beside a shortcut": {"loss": "F.cross_entropy(z + F.relu(z - 1e4), y)"},
    "a cap that holds, beside a layer that counts for nothing": {
        "model": "nn.Sequential(nn.Linear(12, 16), nn.ReLU(), Parts(16, 5))",
        "loss": f"{LOSS} + F.relu(z.norm(dim=1) - 1e4).mean()",
    },
    "a hinge that is satisfied, after another loss": {
        "loss": f"{LOSS}; (z.sum() * 0.1).backward(retain_graph=True); optimizer.zero_grad(); "
        "loss = F.relu(z - z.detach() - 1).mean()",
    },
    "nothing in it": {"loss": f"{LOSS} + F.relu(z[:0]).sum()"},
    "evaluated": {"loss": f"{LOSS} + 0 * F.relu(z.detach() - 1e4).sum()"},
}


@pytest.mark.parametrize("what", DEAD)
def test_activations_that_are_flat_everywhere(tmp_path: Path, what: str) -> None:
    (found,) = findings(tmp_path, "TRN118", DEAD[what])
    assert (found["severity"], found["location"]["line"]) == ("warning", CALL)
    assert "get no gradient" in found["message"]


@pytest.mark.parametrize("what", ALIVE)
def test_activations_that_live(tmp_path: Path, what: str) -> None:
    assert not findings(tmp_path, "TRN118", ALIVE[what])


def test_a_parameter_that_a_relu_is_given_has_no_graph_before_it(tmp_path: Path) -> None:
    added = f"{LOSS} + F.relu(model[1].by).sum()"
    assert not findings(tmp_path, "TRN118", {"model": f"nn.Sequential({NET}, Scale(-1.0))", "loss": added})
    assert not [*read(tmp_path / RECORDING).ranks[0].all(Unchecked)]


def test_scores_that_a_relu_ends(tmp_path: Path) -> None:
    ended = "nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 5), nn.ReLU())"
    (note,) = findings(tmp_path, "TRN118", {"model": ended, "before": "model[2].bias.data += 2"})
    assert note["severity"] == "info" and "none below" in note["message"]
    (found,) = findings(
        tmp_path, "TRN118", {"model": ended, "before": "model[2].bias.data += 2; model[2].bias.data[3] -= 20"}
    )
    assert (found["severity"], found["location"]["line"]) == ("warning", CALL)
    assert "1 class of 5 got 0 for all their own samples" in found["message"]


ALIKE: dict[str, Case] = {
    "constant": {"before": "constant(model)"},
    "zeros everywhere": {"before": "constant(model, 0.0)"},
    "equal rows": {
        "model": "nn.Sequential(nn.Linear(12, 16, bias=False), nn.ReLU(), nn.Linear(16, 5))",
        "before": "model[0].weight.data.copy_(model[0].weight.data[:1].clone()); constant(model[2:])",
    },
    "filled": {"before": "[p.data.fill_(0.05) for p in model.parameters()]"},
    "convolutions": {
        "model": "nn.Sequential(nn.Conv1d(1, 8, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(80, 5))",
        "given": "x[:, None]",
        "before": "nn.init.ones_(model[0].weight); nn.init.constant_(model[3].weight, 0.01)",
    },
}
TOLD_APART: dict[str, Case] = {
    "usual": {},
    "last layer of zeros": {"before": "nn.init.zeros_(model[2].weight)"},
    "first layer alone": {"before": "nn.init.constant_(model[0].weight, 0.1)"},
    "LoRA": {"model": "nn.Sequential(nn.Linear(12, 16), nn.ReLU(), Low(16, 5))"},
    "one unit": {
        "model": "nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 1))",
        "before": "nn.init.constant_(model[2].weight, 0.1)",
        "loss": "F.mse_loss(z[:, 0], y.float())",
    },
    "a scale": {"model": f"nn.Sequential({NET}, Scale(1.0))"},
    "frozen": {"before": "constant(model); model[0].requires_grad_(False)"},
    "dropout": {
        "model": "nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 5))",
        "before": "constant(model)",
    },
    "a table": {
        "model": "nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(96, 5))",
        "before": "nn.init.zeros_(model[0].weight)",
        "given": "(x * 2 + 9).long().clamp(0, 19)",
    },
    "a head whose loss counts for nothing yet": {
        "model": "nn.Sequential(nn.Linear(12, 16), nn.ReLU(), Parts(16, 5))",
        "before": "nn.init.zeros_(model[2].masked.weight)",
    },
    "no rate": {"before": "nn.init.zeros_(model[2].weight)", "rate": 0.0},
    "normalization": {"model": "nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 5))"},
}


@pytest.mark.parametrize("what", ALIKE)
def test_units_that_stay_alike(tmp_path: Path, what: str) -> None:
    (found,) = findings(tmp_path, "TRN138", ALIKE[what])
    assert found["severity"] == "warning"
    assert "are one: their weights begin equal, and stay so" in found["message"]


@pytest.mark.parametrize("what", TOLD_APART)
def test_units_that_are_told_apart(tmp_path: Path, what: str) -> None:
    assert not findings(tmp_path, "TRN138", TOLD_APART[what])
