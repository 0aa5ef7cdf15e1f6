"""`torchvet.lightning.Vet` with Lightning under its older name; a process of its own has no other in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pl = pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")


class Net(pl.LightningModule):  # type: ignore[name-defined, misc]
    def __init__(self, fail_at: int | None = None) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 4)
        self.fail_at = fail_at
        self.kept: list[torch.Tensor] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        if index == self.fail_at:
            raise RuntimeError("the loader is broken")
        loss = nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
        self.kept.append(nn.functional.cross_entropy(self.layer(batch[0]), batch[1]))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def fit(net: Net, folder: Path, vet: Any, logger: Any = False) -> None:
    data = TensorDataset(torch.randn(960, 64), torch.randint(0, 4, (960,)))
    trainer = pl.Trainer(
        max_steps=30, accelerator="cpu", logger=logger, callbacks=[vet], default_root_dir=folder,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(net, DataLoader(data, batch_size=32))


def test_a_leak_is_reported_and_logged(tmp_path: Path) -> None:
    from pytorch_lightning.loggers import CSVLogger

    from torchvet.lightning import Vet

    vet, logger = Vet(show=False), CSVLogger(tmp_path)
    fit(Net(), tmp_path, vet, logger)
    assert isinstance(vet, pl.Callback), "of the package that the program has imported"
    assert vet.report is not None
    (found,) = [f for f in vet.report.findings if f.severity != "info"]
    assert found.code == "MEM101" and found.holder is not None and found.holder.name == "net.kept"
    assert "torchvet/leaked_bytes_per_step" in Path(logger.log_dir, "metrics.csv").read_text()


def test_a_fit_that_fails_is_reported(tmp_path: Path) -> None:
    from torchvet.lightning import Vet

    vet = Vet(show=False)
    with pytest.raises(RuntimeError, match="the loader is broken"):
        fit(Net(fail_at=3), tmp_path, vet)
    assert vet.report is not None and vet.report.facts["outcome"]["how"] == "exception"
