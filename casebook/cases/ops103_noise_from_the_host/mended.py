import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_args()


class Ranker(nn.Module):
    def __init__(self, features: int, width: int = 64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


class Meter:
    def __init__(self, device: torch.device):
        self.total = torch.zeros((), device=device)
        self.norms: list[float] = []

    def add(self, loss: torch.Tensor, model: nn.Module) -> None:
        self.total += loss
        del model


class Trainer:
    def __init__(self, device: torch.device, prior: torch.Tensor):
        self.device = device
        self.prior = prior
        self.model = Ranker(256).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.meter = Meter(device)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x, y = x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)
        x = x + 0.01 * torch.randn(x.shape, device=self.device)
        return F.cross_entropy(self.model(x) + self.prior, y)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        loss = self.loss(x, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.meter.add(loss.detach(), self.model)


def main() -> None:
    steps = arguments().steps
    torch.manual_seed(0)
    device = torch.device("cuda")
    inputs = torch.randn(2048 * steps, 256)
    loader = DataLoader(TensorDataset(inputs, inputs[:, :4].argmax(1)), batch_size=2048, pin_memory=True)
    trainer = Trainer(device, torch.zeros(1, 4, device=device))
    for number, (x, y) in enumerate(loader):
        trainer.step(x, y)
        if number % 10 == 9:
            print(f"step {number + 1} loss {trainer.meter.total.item() / (number + 1):.4f}")


if __name__ == "__main__":
    main()
