"""`torchvet.lightning.Vet` with Lightning itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard_events import scalars, texts
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from torchvet.errors import BadInput

lightning = pytest.importorskip("lightning", reason="lightning is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")


class Net(lightning.LightningModule):  # type: ignore[name-defined, misc]
    def __init__(self, keep: bool, fail_at: int | None = None) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        self.keep, self.fail_at = keep, fail_at
        self.kept: list[torch.Tensor] = []
        self.losses: list[float] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, y = batch
        loss = nn.functional.cross_entropy(self.layers(x), y)
        if index == self.fail_at:
            raise RuntimeError("the loader is broken")
        if self.keep:
            self.kept.append(nn.functional.cross_entropy(self.layers(x), y))
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def fit(net: Net, folder: Path, *callbacks: Any, loggers: Any = False, steps: int = 30) -> None:
    torch.manual_seed(0)
    for module in net.layers:
        if isinstance(module, nn.Linear):
            module.reset_parameters()
    data = TensorDataset(torch.randn(960, 64), torch.randint(0, 4, (960,)))
    trainer = lightning.Trainer(
        max_steps=steps, accelerator="cpu", logger=loggers, callbacks=list(callbacks), default_root_dir=folder,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(net, DataLoader(data, batch_size=32))


def test_a_leak_is_reported_and_goes_to_the_loggers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

    from torchvet.lightning import Vet

    board, table = TensorBoardLogger(tmp_path, "tb"), CSVLogger(tmp_path, "csv")
    vet = Vet(tmp_path / "report.json")
    fit(Net(keep=True), tmp_path, vet, loggers=[board, table])
    assert vet.report is not None
    (found,) = [f for f in vet.report.findings if f.severity != "info"]
    assert (found.code, found.holder is not None and found.holder.name) == ("MEM101", "net.kept")
    assert found.location is not None and found.location.path == __file__
    assert "1 leak: `net.kept` keeps" in capfd.readouterr().err
    assert json.loads((tmp_path / "report.json").read_bytes())["verdict"] == "findings"
    logged = scalars(Path(board.log_dir))
    assert logged["torchvet/errors"] + logged["torchvet/warnings"] == 1 and logged["torchvet/judged"] == 1
    assert logged["torchvet/leaked_bytes_per_step"] == pytest.approx(found.measured.bytes_per_step)
    assert "MEM101 graph-retained" in texts(Path(board.log_dir))
    assert "torchvet/errors" in Path(table.log_dir, "metrics.csv").read_text()


def test_a_leak_goes_to_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    from lightning.pytorch.loggers import WandbLogger

    from torchvet.lightning import Vet

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    logger = WandbLogger(save_dir=str(tmp_path), offline=True)
    fit(Net(keep=True), tmp_path, Vet(show=False), loggers=logger)
    summary = dict(logger.experiment.summary)
    wandb.finish()
    assert summary["torchvet/errors"] + summary["torchvet/warnings"] == 1
    assert "MEM101 graph-retained" in summary["torchvet"]


def test_a_healthy_fit_computes_what_it_does_alone(tmp_path: Path) -> None:
    from torchvet.lightning import Vet

    vet = Vet(show=False)
    alone, watched, again = Net(keep=False), Net(keep=False), Net(keep=False)
    fit(alone, tmp_path)
    fit(watched, tmp_path, vet)
    assert vet.report is not None and vet.report.facts["steps"] == 30
    first = vet.report
    fit(again, tmp_path, vet)
    assert watched.losses == alone.losses == again.losses
    assert vet.report is not first, "a callback may watch one fit after another"
    assert [f for r in (first, vet.report) for f in r.findings if f.severity != "info"] == []


def test_a_fit_that_fails_is_reported(tmp_path: Path) -> None:
    from torchvet.lightning import Vet

    vet = Vet(show=False)
    with pytest.raises(RuntimeError, match="the loader is broken"):
        fit(Net(keep=False, fail_at=3), tmp_path, vet)
    assert vet.report is not None
    outcome = vet.report.facts["outcome"]
    assert outcome["how"] == "exception" and outcome["place"]["function"].endswith("training_step")


def test_an_extension_that_is_no_formats_is_refused_before_the_fit() -> None:
    from torchvet.lightning import Vet

    with pytest.raises(BadInput, match=r"\.pdf"):
        Vet("report.pdf")
