"""A mean teacher: its weights belong to no optimizer, on purpose; they follow the student's."""

import argparse
import copy

import torch
from torch import nn


def follow(teacher, student, pace):
    with torch.no_grad():
        for old, new in zip(teacher.parameters(), student.parameters()):
            old.add_(new - old, alpha=pace)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, 3))
teacher = copy.deepcopy(student)
optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
for step in range(args.steps):
    x = torch.randn(128, 24)
    with torch.no_grad():
        soft = teacher(x + 0.1 * torch.randn_like(x)).softmax(dim=1)
    logits = student(x)
    loss = nn.functional.cross_entropy(logits, x[:, :3].argmax(dim=1)) + 0.1 * nn.functional.cross_entropy(logits, soft)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    follow(teacher, student, 0.05)
    if step % 10 == 9:
        print(f"{step + 1} {loss.item():.4f}")
