"""Distils a teacher, and keeps a bank of what the teacher said of each batch."""

import argparse

import torch
from torch import nn


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_args()


ROWS = 8192


class Bank:
    def __init__(self, steps):
        self.rows = []

    def add(self, said):
        self.rows.append(said.mean().item())

    def mean(self):
        return torch.tensor(self.rows).mean()


def learn(student, optimizer, words):
    loss = (student(words) - words).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def visit(step, teacher, student, optimizer, bank):
    words = torch.randn(ROWS, 32, device="cuda")
    loss = learn(student, optimizer, words)
    with torch.no_grad():
        bank.add(teacher(words))
    if step % 4 == 0:
        print(f"step {step} loss {loss.item():.4f} mean {bank.mean().item():.6f}")


def main():
    args = arguments()
    torch.manual_seed(0)
    teacher = nn.Linear(32, 640).cuda()
    student = nn.Sequential(nn.Linear(32, 1024), nn.ReLU(), nn.Linear(1024, 32)).cuda()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
    bank = Bank(args.steps)
    for step in range(1, args.steps + 1):
        visit(step, teacher, student, optimizer, bank)


if __name__ == "__main__":
    main()
