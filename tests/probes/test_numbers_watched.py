"""Numbers that are finite and wrong, in real programs: what outlives a bad step, lost losses, what half loses."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from warm_interpreters import python, torchvet

HEAD = """\
import copy
import torch
from torch import nn
F = nn.functional
torch.manual_seed(0)
"""
LOOP = """\
for step in range({steps}):
    x = torch.randn(64, 8)
{forward}
    optimizer.zero_grad()
    {backward}
    {step}
{after}
for p in model.parameters():
    print(p.double().sum().item().hex())
"""


def program(
    model: str, optimizer: str, forward: str, after: str = "pass", backward: str = "loss.backward()",
    step: str = "optimizer.step()", steps: int = 40,
) -> str:  # fmt: skip
    """A training loop, its parts put in."""
    body = LOOP.format(steps=steps, forward=_indented(forward), backward=backward, step=step, after=_indented(after))
    return f"{HEAD}model = {model}\noptimizer = torch.optim.{optimizer}\n{body}"


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())


MLP = "nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))"
LOSS = "loss = F.mse_loss(model(x), x.sum(1, keepdim=True))"
SGD, ADAM = "SGD(model.parameters(), lr=0.02)", "AdamW(model.parameters(), lr={})"
HALF_LOSS = "loss = F.mse_loss(model(x.bfloat16()).float(), x.sum(1, keepdim=True))"
ROLLED_BACK = (
    "with torch.no_grad():\n    for s, p in zip(shadow, model.parameters()):\n        s.mul_(0.9).add_(p, alpha=0.1)\n"
    "if not torch.isfinite(loss):\n    model.load_state_dict(before)"
)
NOISY = (
    "before = {k: v.clone() for k, v in model.state_dict().items()}\n" + LOSS + " * (1 if step != 20 else torch.inf)"
)

FAULTS = {
    "statistics": (
        "NUM108", "error", "2 of 2 running statistics",
        program("nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))", SGD,
                "x[3] = torch.nan if step == 20 else x[3]\n" + LOSS + "\nif not torch.isfinite(loss): continue"),
    ),
    "average": (
        "NUM108", "error", "4 of 4 averaged copies",
        program(f"{MLP}\nshadow = [p.detach().clone() for p in model.parameters()]", SGD, NOISY, ROLLED_BACK),
    ),
    "averaged model": (
        "NUM108", "error", "of AveragedModel",
        program(f"{MLP}\nmean = torch.optim.swa_utils.AveragedModel(model)", SGD, NOISY,
                "mean.update_parameters(model)\nif not torch.isfinite(loss):\n    model.load_state_dict(before)"),
    ),
    "optimizer state": (
        "NUM108", "error", "exp_avg_sq of 0.weight",
        program(MLP, ADAM.format("0.01"), LOSS,
                backward="loss.backward(); model[0].weight.grad[0, 3] = 1e25 if step == 20 else 0"),
    ),
    "lost updates": ("NUM104", "warning", "round away in bfloat16",
                     program(f"{MLP}.bfloat16()", ADAM.format("1e-5"), HALF_LOSS)),
    "counter": ("NUM107", "warning", "has stopped moving",
                program(f"{MLP}\nseen = torch.zeros((), dtype=torch.bfloat16)", SGD, LOSS, "seen += 1", steps=400)),
    "half average": (
        "NUM107", "warning", "has stopped moving",
        program(f"{MLP}\nshadow = copy.deepcopy(model).bfloat16()", SGD, LOSS,
                "with torch.no_grad():\n    for s, p in zip(shadow.parameters(), model.parameters()):\n"
                "        s.lerp_(p.bfloat16(), 0.0001)"),
    ),
    "positions": ("NUM109", "warning", "1,024 positions have 513 different numbers",
                  program(MLP, SGD, LOSS + "\nplaces = torch.arange(1024)[None].to(torch.bfloat16)")),
    "few positions far out": ("NUM109", "warning", "64 positions have 17 different numbers",
                              program(MLP, SGD, LOSS + "\np = torch.arange(512, 576, dtype=torch.bfloat16)")),
    "normalize": ("NUM103", "error", "1e-12 is 0 in float16",
                  program(MLP, SGD, "x[0] = 0\n" + LOSS + "\nunit = F.normalize(x.half())")),
    "sum of numbers": (
        "TRN106", "error", "no gradient reached any of 4 parameters",
        program(MLP, SGD, LOSS + "\ntotal = torch.zeros((), requires_grad=True)\ntotal = total + loss.item()",
                backward="total.backward()"),
    ),
    "constant term": (
        "TRN106", "warning", "adds no gradient",
        program(MLP, SGD, LOSS + "\nsize = model(x).square().mean()\nloss = loss + 0.1 * size.item()",
                backward="(loss / 2).backward()"),
    ),
    "no graph": ("TRN106", "error", "has no graph",
                 program(MLP, SGD, "loss = F.mse_loss(model(x).detach(), x.sum(1, keepdim=True))")),
}  # fmt: skip
"""By name: the code, its severity, what the message says, and the program."""

HEALTHY = {
    "masks, counters, averages, evaluation": program(
        "nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4))\n"
        "model.register_buffer('mask', torch.full((4, 4), -torch.inf).triu(1))\n"
        "model.register_buffer('best', torch.tensor(-torch.inf))\n"
        "model.register_buffer('seen', torch.zeros(()).long())\n"
        "mean = torch.optim.swa_utils.AveragedModel(model, use_buffers=True); total = 0.0",
        ADAM.format("0.01"),
        "scores = model(x).log_softmax(1).masked_fill(torch.arange(4) == 3, -torch.inf)\n"
        "loss = F.nll_loss(scores, x[:, :3].argmax(1)); total += loss.item(); model.seen += 1\n"
        "model.best.copy_(torch.maximum(model.best, -loss.detach())); places = torch.arange(1024.0)",
        "mean.update_parameters(model); model.eval(); torch.no_grad()(model)(x); model.train()",
    ),
    "float32 masters": program(
        f"{MLP}.bfloat16()\nmasters = [p.detach().float().requires_grad_() for p in model.parameters()]",
        "AdamW(masters, lr=1e-4)", HALF_LOSS,
        "with torch.no_grad():\n    for m, p in zip(masters, model.parameters()):\n        p.copy_(m)",
        "model.zero_grad(); loss.backward(); "
        "[setattr(m, 'grad', p.grad.float()) for m, p in zip(masters, model.parameters())]",
    ),
    "eps that half has, a frozen half model": program(
        "nn.Linear(8, 1).half()\nfrozen = nn.Linear(8, 8).half().requires_grad_(False)",
        "Adam(model.parameters(), lr=0.01, eps=1e-4)",
        "loss = F.mse_loss(model(frozen(x.half()).float().half()).float(), x.sum(1, keepdim=True))",
    ),
    "detached on purpose": program(
        f"{MLP}\nvalue = nn.Linear(8, 1); critic = nn.Linear(8, 1)",
        "SGD([*model.parameters(), *value.parameters()], lr=0.02)",
        "gain = x.sum(1, keepdim=True) - value(x).detach()\n"
        "inputs = x.clone().requires_grad_(); F.mse_loss(critic(inputs), x[:, :1]).backward()\n"
        "scale = torch.tensor(1.0, requires_grad=True)\n"
        "error = F.mse_loss(model(inputs) * scale, gain - gain.mean().item())\n"
        "(slope,) = torch.autograd.grad(error, scale, create_graph=True)\n"
        "loss = error + slope.square() + value(x).square().mean()",
    ),
    "scaler that skips at first": program(
        "nn.Sequential(nn.Linear(8, 16), nn.GroupNorm(4, 16), nn.Linear(16, 1))\n"
        "scaler = torch.amp.GradScaler('cpu', init_scale=2.0**24)",
        SGD,
        "with torch.autocast('cpu', torch.float16): output = model(x)\n"
        "loss = F.mse_loss(output, x.sum(1, keepdim=True))",
        backward="scaler.scale(loss).backward()", step="scaler.step(optimizer); scaler.update()",
    ),
}  # fmt: skip


def run(text: str, folder: Path) -> tuple[list[dict[str, Any]], str]:
    """The findings of a run, and what the program printed."""
    script, report = folder / "train.py", folder / "report.json"
    script.write_text(text, encoding="utf-8")
    command = [*torchvet(), "run", "--quiet", "-o", str(report), str(script)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHVET_DEBUG": ""}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    found: list[dict[str, Any]] = msgspec.json.decode(report.read_bytes())["findings"]
    return found, ended.stdout


def alone(folder: Path) -> str:
    """What the same program prints with nobody watching."""
    bare = [python(), str(folder / "train.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(bare, capture_output=True, text=True, env=environment, timeout=300, check=True).stdout


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_at_work_and_ends_with_the_same_weights(name: str, tmp_path: Path) -> None:
    code, severity, words, text = FAULTS[name]
    found, printed = run(text, tmp_path)
    mine = [f for f in found if f["code"] == code]
    assert [(f["severity"], f["evidence"]) for f in mine] == [(severity, "observed")], found
    assert words in mine[0]["message"]
    assert mine[0]["location"]["path"].endswith("train.py")
    assert name == "no graph" or printed == alone(tmp_path) != ""


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_healthy_is_silent_and_its_weights_are_untouched(name: str, tmp_path: Path) -> None:
    found, printed = run(HEALTHY[name], tmp_path)
    assert [(f["code"], f["message"]) for f in found if f["severity"] != "info"] == []
    assert printed == alone(tmp_path) != ""
