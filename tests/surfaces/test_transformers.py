"""`torchvet.transformers.VetCallback` with the Trainer of transformers itself, and a model of two layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard_events import scalars, texts
from torch import nn

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed, which the Trainer needs")
pytestmark = pytest.mark.filterwarnings("ignore")


class Net(nn.Module):
    def __init__(self, keep: bool, fail_at: int | None = None) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        self.keep, self.fail_at = keep, fail_at
        self.kept: list[torch.Tensor] = []
        self.losses: list[float] = []

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        loss = nn.functional.cross_entropy(self.layers(x), labels)
        if len(self.losses) == self.fail_at:
            raise RuntimeError("a bad batch")
        if self.keep:
            self.kept.append(nn.functional.cross_entropy(self.layers(x), labels))
        self.losses.append(loss.item())
        return {"loss": loss}


def train(net: Net, folder: Path, *callbacks: Any, report_to: str = "none") -> None:
    torch.manual_seed(0)
    for module in net.layers:
        if isinstance(module, nn.Linear):
            module.reset_parameters()
    data = [{"x": torch.randn(64), "labels": torch.tensor(n % 4)} for n in range(320)]
    asked = transformers.TrainingArguments(
        str(folder), max_steps=30, per_device_train_batch_size=32, use_cpu=True, report_to=report_to, disable_tqdm=True,
        save_strategy="no", remove_unused_columns=False, dataloader_pin_memory=False,
    )  # fmt: skip
    transformers.Trainer(model=net, args=asked, train_dataset=data, callbacks=list(callbacks)).train()


def test_a_leak_is_reported_and_goes_to_tensorboard(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from torchvet.transformers import VetCallback

    vet = VetCallback(tmp_path / "report.json")
    train(Net(keep=True), tmp_path, vet, report_to="tensorboard")
    assert vet.report is not None
    (found,) = [f for f in vet.report.findings if f.severity != "info"]
    assert found.code == "MEM101" and found.holder is not None and found.holder.name.endswith("kept")
    assert found.location is not None and found.location.path == __file__
    assert "1 leak: " in capfd.readouterr().err
    assert json.loads((tmp_path / "report.json").read_bytes())["verdict"] == "findings"
    (run,) = {file.parent for file in tmp_path.rglob("events.out.*")}
    logged = scalars(run)
    assert logged["torchvet/errors"] + logged["torchvet/warnings"] == 1 and "train/train_loss" in logged
    assert "MEM101 graph-retained" in texts(run)


def test_a_leak_goes_to_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    from torchvet.transformers import VetCallback

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    train(Net(keep=True), tmp_path, VetCallback(show=False), report_to="wandb")
    summary = dict(wandb.run.summary)
    wandb.finish()
    assert summary["torchvet/errors"] + summary["torchvet/warnings"] == 1
    assert "MEM101 graph-retained" in summary["torchvet"]


def test_a_healthy_training_computes_what_it_does_alone(tmp_path: Path) -> None:
    from torchvet.transformers import VetCallback

    vet, alone, watched = VetCallback(show=False), Net(keep=False), Net(keep=False)
    train(alone, tmp_path)
    train(watched, tmp_path, vet)
    assert watched.losses == alone.losses
    assert vet.report is not None and vet.report.facts["steps"] == 30
    assert [f for f in vet.report.findings if f.severity != "info"] == []


def test_a_training_that_fails_is_reported_when_the_next_begins_or_the_program_ends(tmp_path: Path) -> None:
    from torchvet.transformers import VetCallback

    vet = VetCallback(show=False)
    with pytest.raises(RuntimeError, match="a bad batch"):
        train(Net(keep=False, fail_at=3), tmp_path, vet)
    assert vet.report is None, "the trainer tells no callback that it failed"
    vet._training._end_at_exit()
    assert vet.report is not None and vet.report.facts["steps"] == 3
    first = vet.report
    train(Net(keep=False), tmp_path, vet)
    assert vet.report is not first and vet.report.facts["steps"] == 30
