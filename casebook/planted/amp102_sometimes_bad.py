"""Speech model training step with gradient statistics for the dashboard."""

from __future__ import annotations

import torch
import torch.nn as nn


class GradMonitor:
    """Collects the norm of the gradients of each group."""

    def __init__(self) -> None:
        self.history: list[float] = []

    def __call__(self, params) -> None:
        norms = [p.grad.detach().norm() for p in params if p.grad is not None]
        self.history.append(torch.stack(norms).norm().item())
        del self.history[:-200]


class Engine:
    def __init__(self, net: nn.Module, lr: float = 1e-3, device: str = "cuda") -> None:
        self.net = net.to(device)
        self.device = device
        self.opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
        self.scaler = torch.amp.GradScaler(device)
        self.monitor = GradMonitor()
        self.ctc = nn.CTCLoss(zero_infinity=True)
        self.global_step = 0

    def step(self, feats, feat_lens, targets, target_lens) -> torch.Tensor:
        self.opt.zero_grad(set_to_none=True)
        with torch.autocast(self.device):
            logp = self.net(feats).log_softmax(-1).transpose(0, 1)
            loss = self.ctc(logp, targets, feat_lens, target_lens)
        self.scaler.scale(loss).backward()
        if self.global_step % 50 == 0:
            # need true norms in the log
            self.scaler.unscale_(self.opt)
            self.monitor(self.net.parameters())
        self.scaler.unscale_(self.opt)
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), max_norm=10.0, error_if_nonfinite=False)
        self.scaler.step(self.opt)
        self.scaler.update()
        self.global_step += 1
        return loss.detach()


def run(loader, epochs: int) -> None:
    model = nn.Sequential(nn.Linear(80, 512), nn.ReLU(), nn.Linear(512, 32))
    engine = Engine(model)
    for _ in range(epochs):
        for batch in loader:
            engine.step(*(t.to("cuda") for t in batch))
