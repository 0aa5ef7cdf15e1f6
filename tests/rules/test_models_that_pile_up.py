"""Models and optimizers that stay alive after their training: found with name, rate and line; a few are no leak."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import forked

from torchvet.source.stores import SourceIndex

FILE = "train.py"
TRAINING = """
import copy
import torch
from torch import nn

torch.manual_seed(0)

class Pool:
    def __init__(self):
        self._models = []
        self._optimizers = []
    def prepare(self, model, optimizer):
        self.__dict__["_models"] += [model]
        self.__dict__["_optimizers"] += [optimizer]
        return model, optimizer

def new():
    return nn.Sequential(nn.Linear(32, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 8))

def train(model, optimizer, steps=30):
    for step in range(steps):
        x = torch.randn(16, 32)
        loss = nn.functional.cross_entropy(model(x), x[:, :8].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

class Validation:
    def __init__(self):
        self.pool, self.kept = Pool(), []
    def fold(self, k):
        model = new()
        optimizer = torch.optim.Adam(model.parameters())
        {each}

def main():
    validation = Validation()
    k = 0
    while k < {folds}:
        validation.fold(k)
        k += 1

main()
"""
WEIGHTS = 4 * (32 * 256 + 256 + 256 * 256 + 256 + 256 * 8 + 8)
"""Bytes of a model's parameters; its gradients and both averages take as many each, and each parameter has a count."""
ONE = 4 * WEIGHTS + 6 * 4


def grown(each: str, tmp_path: Path, folds: int = 9) -> list[dict[str, Any]]:
    """What is said of growth at warning or above, with the text of its line."""
    program = TRAINING.format(each=each, folds=folds)
    found = forked(program, tmp_path)
    assert found is not None
    lines = program.splitlines()
    for one in found:
        one["text"] = lines[one["location"]["line"] - 1].strip() if one.get("location") else ""
    return [one for one in found if one["code"].startswith("MEM1") and one["severity"] != "info"]


HANDED = "model, optimizer = self.pool.prepare(model, optimizer); train(model, optimizer)"
STORED = "train(model, optimizer); self.kept.append((model, optimizer))"


@pytest.mark.parametrize(("each", "holder"), [(HANDED, "pool._"), (STORED, "kept")])
def test_each_fold_leaves_its_model_and_its_optimizer(each: str, holder: str, tmp_path: Path) -> None:
    (one,) = grown(each, tmp_path)
    assert one["code"] == "MEM102" and holder in one["holder"]["name"] and one["text"] == each
    assert one["measured"]["bytes_per_step"] == pytest.approx(ONE / 30, rel=0.01)
    assert "models that are not trained any more" in one["cause"]
    (made,) = (r for r in one["related"] if r["role"] == "made")
    assert made["message"] == "9 optimizers, one every 30 steps"


QUIET = {
    "let go": "train(model, optimizer); self.kept.append(sum(p.sum().item() for p in model.parameters()))",
    "an average": "train(model, optimizer); self.kept[:] = [copy.deepcopy(model)]; self.kept[0](torch.ones(1, 32))",
}


@pytest.mark.parametrize("each", QUIET.values(), ids=QUIET)
def test_models_that_are_let_go_are_no_leak(each: str, tmp_path: Path) -> None:
    assert grown(each, tmp_path) == []


def test_two_stages_are_no_leak(tmp_path: Path) -> None:
    assert grown(STORED.replace("optimizer)", "optimizer, 120)", 1), tmp_path, folds=2) == []


def handed(text: str, line: int, name: str) -> int | None:
    found = SourceIndex({FILE: text}).handed_to(FILE, line, name)
    return found.line if found is not None else None


def test_the_call_that_hands_in_is_one_on_what_holds() -> None:
    text = (
        "def fold(self):\n    optimizer = SGD(w)\n    other.prepare(optimizer)\n    self.pool.log(1)\n"
        "    optimizer = self.pool.prepare(model=optimizer)\n    self.pool.step(optimizer.lr)\n"
    )
    assert handed(text, 2, "self.pool._optimizers") == 5 == handed(text, 2, "self.pool")
    assert handed(text, 2, "self.pooled._optimizers") is None
    assert handed(text, 4, "self.pool._optimizers") is None, "binds nothing"
    assert handed("", 2, "self.pool") is None
