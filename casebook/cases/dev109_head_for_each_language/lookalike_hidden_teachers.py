"""Frozen teachers stand in a list on purpose, so that they are not saved with the student."""

import argparse

import torch
from torch import nn


class Student(nn.Module):
    def __init__(self, teachers):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
        self.teachers = [teacher.eval().requires_grad_(False) for teacher in teachers]

    def forward(self, x):
        return self.body(x)

    def loss(self, x):
        with torch.no_grad():
            wanted = torch.stack([teacher(x).softmax(1) for teacher in self.teachers]).mean(0)
        return nn.functional.cross_entropy(self(x), wanted)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    student = Student([nn.Linear(12, 4) for _ in range(3)])
    optimizer = torch.optim.SGD(student.parameters(), lr=0.3)
    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        loss = student.loss(torch.randn(64, 12))
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")
