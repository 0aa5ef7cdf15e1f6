"""Sorts short recordings by their kind; the network is a small convolution over time."""

import argparse

import torch
from torch import nn


class Listener(nn.Module):
    def __init__(self, kinds: int):
        super().__init__()
        self.ears = nn.Sequential(nn.Conv1d(1, 16, 9, stride=4), nn.GELU(), nn.Conv1d(16, 32, 9, stride=4), nn.GELU())
        self.decide = nn.Linear(32, kinds)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        pooled = self.ears(sound[:, None]).mean(dim=2)
        return self.decide(pooled)


class Course:
    def __init__(self, listener: Listener):
        self.listener = listener
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.optimizer = torch.optim.AdamW(listener.parameters(), lr=2e-3)

    def lesson(self, sound: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        scores = self.listener(sound)
        return self.criterion(scores, kind)

    def attend(self, sound: torch.Tensor, kind: torch.Tensor) -> float:
        loss = self.lesson(sound, kind)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def recordings(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    kind = torch.randint(0, 4, (count,))
    pitch = 0.05 * (kind + 1)[:, None]
    return torch.sin(pitch * torch.arange(512) + torch.rand(count, 1)) + 0.1 * torch.randn(count, 512), kind


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    course = Course(Listener(4))
    for step in range(1, steps + 1):
        loss = course.attend(*recordings(32))
        if step % 10 == 0:
            print(f"{step} {loss:.4f}")


if __name__ == "__main__":
    main()
