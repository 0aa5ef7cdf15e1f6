from __future__ import annotations

import dataclasses
import pathlib
from typing import Callable

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset


@dataclasses.dataclass
class Settings:
    lr: float = 1e-3
    batch_size: int = 512
    max_epochs: int = 20
    num_workers: int = 4
    out_dir: pathlib.Path = pathlib.Path("runs")


class SpectrogramTrainer:
    """Trains a sound classifier. `on_epoch_end(epoch, loss)` is called after each epoch."""

    def __init__(self, model: nn.Module, dataset: Dataset, cfg: Settings, on_epoch_end: Callable | None = None):
        self.cfg = cfg
        self.device = torch.device("cuda")
        self.model = model.to(self.device)
        self.optimizer = optim.AdamW(self.model.parameters(), lr=cfg.lr)
        self.criterion = nn.CrossEntropyLoss()
        self.train_loader = DataLoader(
            dataset, cfg.batch_size, shuffle=True, num_workers=cfg.num_workers, pin_memory=True, persistent_workers=True
        )
        self.on_epoch_end = on_epoch_end

    def _to_device(self, batch):
        spectrogram, label = batch
        return spectrogram.to(self.device, non_blocking=True), label.to(self.device, non_blocking=True)

    def _train_epoch(self) -> torch.Tensor:
        self.model.train()
        total = torch.zeros((), device=self.device)
        for batch in self.train_loader:
            x, y = self._to_device(batch)
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.criterion(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        return total / len(self.train_loader)

    def fit(self) -> None:
        self.cfg.out_dir.mkdir(parents=True, exist_ok=True)
        for epoch in range(self.cfg.max_epochs):
            mean = self._train_epoch().item()
            if self.on_epoch_end is not None:
                self.on_epoch_end(epoch, mean)
            torch.save(
                {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": epoch},
                self.cfg.out_dir / "last.pt",
            )
