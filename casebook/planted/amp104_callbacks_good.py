"""A small engine with callbacks, as in many course repositories."""

from typing import Any, Callable, Iterable

import torch
from torch import nn


class Callback:
    def on_batch_end(self, engine: "Engine") -> None: ...
    def on_epoch_end(self, engine: "Engine") -> None: ...


class Printer(Callback):
    def on_epoch_end(self, engine: "Engine") -> None:
        print(f"epoch {engine.epoch}: {engine.last_loss:.4f}")


class Engine:
    def __init__(
        self, model: nn.Module, loss_fn: Callable[..., Any], accumulate: int, callbacks: Iterable[Callback]
    ) -> None:
        self.model, self.loss_fn = model.cuda(), loss_fn
        self.optimizer = torch.optim.RAdam(model.parameters(), lr=3e-4)
        self.grad_scaler = torch.amp.GradScaler("cuda", init_scale=2.0**14, growth_interval=500)
        self.accumulate = accumulate
        self.callbacks = list(callbacks)
        self.iteration = self.epoch = 0
        self.last_loss = float("nan")

    @property
    def is_boundary(self) -> bool:
        return self.iteration % self.accumulate == 0

    def _forward_backward(self, xb, yb) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.half):
            loss = self.loss_fn(self.model(xb), yb)
        self.grad_scaler.scale(loss / self.accumulate).backward()
        return loss.detach()

    def run_epoch(self, loader) -> None:
        self.model.train()
        for xb, yb in loader:
            loss = self._forward_backward(xb.cuda(), yb.cuda())
            self.iteration += 1
            if self.is_boundary:
                self.grad_scaler.step(self.optimizer)
                self.grad_scaler.update()
                self.optimizer.zero_grad()
            for cb in self.callbacks:
                cb.on_batch_end(self)
        self.last_loss = loss.item()
        self.epoch += 1
        for cb in self.callbacks:
            cb.on_epoch_end(self)
