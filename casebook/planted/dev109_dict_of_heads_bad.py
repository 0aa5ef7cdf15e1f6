"""Multi-task network: a shared trunk and one head for each task."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn as nn
from torchvision.models import efficientnet_b0


@dataclass
class Task:
    name: str
    outputs: int
    weight: float = 1.0
    kind: str = "classification"


@dataclass
class Config:
    tasks: list[Task] = field(default_factory=list)
    dropout: float = 0.2


class MultiTask(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        trunk = efficientnet_b0(weights="DEFAULT")
        self.trunk = nn.Sequential(trunk.features, trunk.avgpool, nn.Flatten())
        self.heads = {t.name: self._head(t.outputs, cfg.dropout) for t in cfg.tasks}
        self.weights = {t.name: t.weight for t in cfg.tasks}
        self.losses = {"classification": nn.CrossEntropyLoss(), "regression": nn.SmoothL1Loss()}
        self.kinds = {t.name: t.kind for t in cfg.tasks}

    @staticmethod
    def _head(outputs: int, dropout: float) -> nn.Sequential:
        return nn.Sequential(nn.Dropout(dropout), nn.Linear(1280, 256), nn.ReLU(), nn.Linear(256, outputs))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        features = self.trunk(x)
        return {name: head(features) for name, head in self.heads.items()}

    def loss(self, outputs: dict[str, torch.Tensor], targets: dict[str, torch.Tensor]) -> torch.Tensor:
        total = 0.0
        for name, out in outputs.items():
            total = total + self.weights[name] * self.losses[self.kinds[name]](out, targets[name])
        return total


def train_step(model, batch, optimizer, device):
    images = batch.pop("image").to(device, non_blocking=True)
    targets = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
    optimizer.zero_grad()
    loss = model.loss(model(images), targets)
    loss.backward()
    optimizer.step()
    return loss.detach()
