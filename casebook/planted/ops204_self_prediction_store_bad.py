"""Evaluate a regression model; predictions are gathered on the object."""

from typing import Iterable

import torch
from torch import Tensor, nn


class Evaluator:
    """Gathers predictions and targets over a loader and scores them at the end."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.model = model
        self.device = device
        self.preds: Tensor | None = None
        self.targets: Tensor | None = None

    def reset(self) -> None:
        self.preds = None
        self.targets = None

    @torch.no_grad()
    def run(self, loader: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
        self.reset()
        self.model.eval()
        for features, target in loader:
            out = self.model(features.to(self.device, non_blocking=True)).squeeze(-1)
            target = target.to(self.device, non_blocking=True)
            if self.preds is None:
                self.preds, self.targets = out, target
            else:
                self.preds = torch.cat([self.preds, out])
                self.targets = torch.cat([self.targets, target])
        return self.score()

    def score(self) -> dict[str, float]:
        error = self.preds - self.targets
        var = (self.targets - self.targets.mean()).pow(2).sum()
        r2 = 1 - error.pow(2).sum() / var
        return {"mae": error.abs().mean().item(), "rmse": error.pow(2).mean().sqrt().item(), "r2": r2.item()}


def fit(model, train_loader, valid_loader, epochs, lr=1e-3):
    device = next(model.parameters()).device
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    loss_fn = nn.HuberLoss()
    evaluator = Evaluator(model, device)
    best = float("inf")
    for epoch in range(epochs):
        model.train()
        for features, target in train_loader:
            features = features.to(device, non_blocking=True)
            target = target.to(device, non_blocking=True)
            optimizer.zero_grad()
            loss = loss_fn(model(features).squeeze(-1), target)
            loss.backward()
            optimizer.step()
        scores = evaluator.run(valid_loader)
        print(epoch, scores)
        if scores["rmse"] < best:
            best = scores["rmse"]
            torch.save(model.state_dict(), "best.pt")
