import argparse

import torch
import torch.nn.functional as F
from torch import nn


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--device", default="cuda:1")
    return parser.parse_args()


class Classifier(nn.Module):
    def __init__(self, inputs: int, classes: int):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.head = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


class Trainer:
    def __init__(self, model: nn.Module, counts: torch.Tensor, device: str):
        self.device = torch.device(device)
        self.model = model.to(self.device)
        self.rarity = 1 / counts
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def loss(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        weights = self.rarity[labels.cpu()].to(self.device)
        losses = F.cross_entropy(self.model(x), labels, reduction="none")
        return (losses * weights).mean()

    def step(self, x: torch.Tensor, labels: torch.Tensor) -> float:
        loss = self.loss(x.to(self.device), labels.to(self.device))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main() -> None:
    options = arguments()
    torch.manual_seed(0)
    trainer = Trainer(Classifier(20, 5), torch.tensor([40.0, 10.0, 10.0, 20.0, 20.0]), options.device)
    for number in range(options.steps):
        x = torch.randn(32, 20)
        loss = trainer.step(x, x[:, :5].argmax(1))
        if number % 10 == 9:
            print(f"step {number + 1} loss {loss:.4f}")


if __name__ == "__main__":
    main()
