"""Distils a teacher: its probabilities are the target, the student gives scores."""

import argparse

import torch
from torch import nn


class Distillation(nn.Module):
    def __init__(self, teacher, student, temperature=2.0):
        super().__init__()
        self.teacher, self.student, self.temperature = teacher.requires_grad_(False), student, temperature
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, x):
        soft = torch.softmax(self.teacher(x) / self.temperature, dim=1)
        return self.criterion(self.student(x) / self.temperature, soft)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    task = Distillation(nn.Linear(24, 5), nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 5)))
    optimizer = torch.optim.SGD(task.student.parameters(), lr=0.2)
    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        loss = task(torch.randn(64, 24))
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")
