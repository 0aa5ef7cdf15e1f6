"""The examples of the pages on surfaces run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from example_runs import OBSERVING
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torchvet

pytest_plugins = "pytester"

DOCS = Path(__file__).parents[2] / "docs"
PROGRAM = "import torch\nfor x in losses:\n    total += loss\n"


def blocks(page: str, heading: str = "") -> list[str]:
    """The Python blocks of a page, or of one section."""
    text = (DOCS / page).read_text("utf-8")
    if heading:
        text = re.split(r"(?m)^## ", text.partition(f"## {heading}\n")[2])[0]
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def train() -> None:
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "number", range(len(blocks("python-api.md"))), ids=lambda n: blocks("python-api.md")[n].splitlines()[0]
)
def test_an_example_of_the_functions_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("src").mkdir()
    for name in ("train.py", "src/a.py"):
        Path(name).write_text(PROGRAM)
    Path("train.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    Path("snapshot.pickle").write_bytes((DOCS.parent / "tests/data/silmont.pickle").read_bytes())
    monkeypatch.setattr("torchvet.api.simulate.simulate_gpu", lambda card: None)  # it would stay
    monkeypatch.setitem(vars(torchvet), "simulate_gpu", lambda card: None)
    names: dict[str, Any] = {"torchvet": torchvet, "torch": torch, "train": train}
    names.update(prompts=["a", "b"], generate=lambda prompt: torch.ones(2) + 1)
    exec(compile(blocks("python-api.md")[number], "python-api.md", "exec"), names)


def test_the_page_names_the_functions_that_there_are() -> None:
    text = (DOCS / "python-api.md").read_text("utf-8")
    functions = {n for n in torchvet.__all__ if n.islower() and not n.startswith("_")}
    assert functions == set(re.findall(r"(?m)^## `torchvet\.(\w+)\(\)`", text))


def test_the_tests_of_the_page_pass(pytester: pytest.Pytester) -> None:
    for name in OBSERVING:  # what tests within tests import, they forget
        __import__(name)
    pytester.makepyfile(blocks("pytest.md")[0])
    options = ("-p", "no:torchvet", "-p", "torchvet.surfaces.pytest_plugin", "--strict-markers")
    pytester.runpytest_inprocess(*options).assert_outcomes(passed=3)


def names_of_training() -> dict[str, Any]:
    data = TensorDataset(torch.randn(60, 8), torch.randn(60, 1))
    return {"torchvet": torchvet, "torch": torch, "loader": DataLoader(data, batch_size=4)}


@pytest.mark.filterwarnings("ignore")
def test_the_example_of_lightning_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    monkeypatch.chdir(tmp_path)
    model = lightning.LightningModule()
    model.layer = nn.Linear(8, 1)
    model.training_step = lambda batch, batch_idx: model.layer(batch[0]).square().mean()
    model.configure_optimizers = lambda: torch.optim.SGD(model.parameters(), lr=0.1)
    names = {**names_of_training(), "lightning": lightning, "model": model}
    (text,) = blocks("integrations.md", "Lightning")
    exec(compile(text, "integrations.md", "exec"), names)
    assert names["vet"].report.facts["steps"] > 0


@pytest.mark.filterwarnings("ignore")
def test_the_example_of_transformers_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate")
    from test_transformers import Net

    monkeypatch.chdir(tmp_path)
    asked = transformers.TrainingArguments(
        str(tmp_path), max_steps=6, use_cpu=True, report_to="none", save_strategy="no", remove_unused_columns=False
    )
    data = [{"x": torch.randn(64), "labels": torch.tensor(n % 4)} for n in range(64)]
    names: dict[str, Any] = {"transformers": transformers, "model": Net(keep=False), "arguments": asked, "data": data}
    (text,) = blocks("integrations.md", "Transformers")
    exec(compile(text, "integrations.md", "exec"), names)
    assert names["vet"].report.facts["steps"] == 6 and Path("report.json").is_file()


def test_the_example_of_accelerate_runs() -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    names = names_of_training()
    accelerator, model = accelerate.Accelerator(cpu=True), nn.Linear(8, 1)
    made = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), names["loader"])
    names.update(zip(("model", "optimizer", "accelerated_loader"), made, strict=True), accelerator=accelerator)
    (text,) = blocks("integrations.md", "Accelerate")
    exec(compile(text, "integrations.md", "exec"), names)
    assert names["watched"].report.facts["steps"] == 15
