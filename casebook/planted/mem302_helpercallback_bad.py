"""A small training framework with callbacks."""

from __future__ import annotations

import torch


def free_memory() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.ipc_collect()


class Callback:
    def on_batch_end(self, runner: "Runner") -> None: ...

    def on_epoch_end(self, runner: "Runner") -> None: ...


class Progress(Callback):
    def on_epoch_end(self, runner):
        print(runner.epoch, runner.last_loss)


class Runner:
    def __init__(self, model, optimizer, criterion, callbacks=()):
        self.model, self.optimizer, self.criterion = model, optimizer, criterion
        self.callbacks = list(callbacks)
        self.epoch, self.last_loss = 0, None

    def _step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.last_loss = loss.item()

    def train_one_epoch(self, loader):
        self.model.train()
        for x, y in loader:
            self._step(x.cuda(non_blocking=True), y.cuda(non_blocking=True))
            for cb in self.callbacks:
                cb.on_batch_end(self)
            free_memory()

    def fit(self, loader, epochs):
        for self.epoch in range(epochs):
            self.train_one_epoch(loader)
            for cb in self.callbacks:
                cb.on_epoch_end(self)


def main():
    net = torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda()
    ds = torch.utils.data.TensorDataset(torch.randn(4096, 128), torch.randint(0, 10, (4096,)))
    dl = torch.utils.data.DataLoader(ds, 64, shuffle=True, num_workers=2, pin_memory=True)
    Runner(net, torch.optim.Adam(net.parameters()), torch.nn.CrossEntropyLoss(), [Progress()]).fit(dl, 5)


if __name__ == "__main__":
    main()
