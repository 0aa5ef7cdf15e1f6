"""Contrastive pretraining (SimCLR)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SimCLR:
    def __init__(self, encoder: nn.Module, temperature: float = 0.1, lr: float = 1e-3) -> None:
        self.encoder = encoder.to("cuda")
        self.temperature = temperature
        self.optimizer = torch.optim.AdamW(self.encoder.parameters(), lr=lr)
        self.scaler = torch.amp.GradScaler("cuda")

    def info_nce(self, z1: Tensor, z2: Tensor) -> Tensor:
        z = F.normalize(torch.cat([z1, z2]).float(), dim=1)
        sim = z @ z.T / self.temperature
        sim.fill_diagonal_(float("-inf"))
        n = z1.size(0)
        target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(sim.device)
        return F.cross_entropy(sim, target)

    def compute_loss(self, view1: Tensor, view2: Tensor) -> Tensor:
        """Loss of a batch of two views."""
        with torch.autocast("cuda", dtype=torch.float16):
            z1, z2 = self.encoder(view1), self.encoder(view2)
        loss = self.info_nce(z1, z2)
        return self.scaler.scale(loss)

    def fit(self, loader, epochs: int = 100) -> None:
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, epochs)
        for _ in range(epochs):
            for (v1, v2), _label in loader:
                v1, v2 = v1.to("cuda", non_blocking=True), v2.to("cuda", non_blocking=True)
                loss = self.compute_loss(v1, v2)
                self.optimizer.zero_grad(set_to_none=True)
                self.scaler.scale(loss).backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()
            sched.step()
