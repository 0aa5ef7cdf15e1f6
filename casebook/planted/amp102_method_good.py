"""Two-part optimiser for a diffusion transformer; parameters are clipped together."""

import torch
from torch import nn


class Trainer:
    def __init__(self, net):
        self.net = net.cuda()
        decay = [p for p in net.parameters() if p.ndim > 1]
        self.opt = torch.optim.AdamW(decay, lr=1e-4)
        self.scaler = torch.amp.GradScaler("cuda")
        self.steps = 0

    def clip(self):
        self.scaler.unscale_(self.opt)
        return nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)

    def train_step(self, x, t, noise):
        with torch.autocast("cuda"):
            loss = nn.functional.mse_loss(self.net(x, t).float(), noise)
        self.scaler.scale(loss).backward()
        norm = self.clip()
        bad = any(p.grad is not None and not torch.isfinite(p.grad).all() for p in self.net.parameters())
        self.scaler.step(self.opt)
        self.scaler.update()
        self.opt.zero_grad(set_to_none=True)
        self.steps += 1
        return loss.detach(), norm, bad
