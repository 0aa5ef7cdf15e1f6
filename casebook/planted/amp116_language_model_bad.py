"""Pretraining of a masked language model with a warm-up schedule stepped at every update."""

import math
from typing import Optional

import torch
import torch.nn as nn


def warmup_cosine(step: int, warmup: int, total: int) -> float:
    if step < warmup:
        return step / max(1, warmup)
    t = (step - warmup) / max(1, total - warmup)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, t)))


class MLMTrainer:
    def __init__(self, bert: nn.Module, lr: float, total: int, accum: int = 2, clip: Optional[float] = 1.0):
        self.bert = bert.cuda()
        self.optimizer = torch.optim.AdamW(bert.parameters(), lr=lr, betas=(0.9, 0.98), eps=1e-6)
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: warmup_cosine(s, 1000, total))
        self.scaler = torch.amp.GradScaler("cuda", init_scale=2**16)
        self.accum, self.clip = accum, clip
        self.micro = 0

    def step(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.float16):
            scores = self.bert(ids)
            loss = nn.functional.cross_entropy(scores.transpose(1, 2), labels, ignore_index=-100)
        self.scaler.scale(loss / self.accum).backward()
        self.micro += 1
        if self.micro % self.accum == 0:
            self._apply()
        return loss.detach()

    def _apply(self) -> None:
        if self.clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.bert.parameters(), self.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.lr_scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)
