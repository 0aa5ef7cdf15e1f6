"""K-fold GAN-free image restoration; one model per fold."""

import copy

import torch
import torch.nn.functional as F
from torch.amp import GradScaler as Scaler


class Restorer(torch.nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, width, 3, padding=1),
            torch.nn.PReLU(),
            torch.nn.Conv2d(width, width, 3, padding=1),
            torch.nn.PReLU(),
            torch.nn.Conv2d(width, 3, 3, padding=1),
        )

    def forward(self, x):
        return x + self.body(x)


def fit_fold(base, pairs, n_epochs=20, lr=2e-4):
    model = copy.deepcopy(base).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=lr)
    for epoch in range(n_epochs):
        grad_scaler = Scaler("cuda", init_scale=1024)
        total = torch.zeros((), device="cuda")
        for low, high in pairs:
            low, high = low.cuda(), high.cuda()
            with torch.autocast("cuda"):
                restored = model(low)
            loss = F.l1_loss(restored.float(), high)
            opt.zero_grad(set_to_none=True)
            grad_scaler.scale(loss).backward()
            grad_scaler.step(opt)
            grad_scaler.update()
            total += loss.detach()
        print(f"epoch {epoch}: {total.item() / len(pairs):.5f}")
    return model


def cross_validate(folds):
    base = Restorer()
    return [fit_fold(base, pairs) for pairs in folds]
