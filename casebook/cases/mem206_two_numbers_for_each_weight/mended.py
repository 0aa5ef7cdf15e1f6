"""A wide model of tables of numbers, trained on one card; says what it does in its log."""

import argparse
import logging

import torch
from torch import nn

log = logging.getLogger("tables")


class Tables(nn.Module):
    def __init__(self, columns, width):
        super().__init__()
        self.read, self.mix, self.write = nn.Linear(columns, width), nn.Linear(width, width), nn.Linear(width, columns)

    def forward(self, rows):
        return self.write(torch.relu(self.mix(torch.relu(self.read(rows)))))


class Teacher:
    def __init__(self, model, rate):
        self.model = model
        parts = [{"params": model.mix.parameters(), "lr": rate / 2}]
        parts += [{"params": part.parameters(), "lr": rate} for part in (model.read, model.write)]
        self.optimizer = torch.optim.SGD(parts, weight_decay=0.01)

    def teach(self, rows):
        loss = nn.functional.l1_loss(self.model(rows), rows)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    teacher = Teacher(Tables(256, 2048).to("cuda"), rate=1e-3)
    for step in range(args.steps):
        loss = teacher.teach(torch.randn(8, 256, device="cuda"))
        log.info("step %d loss %.4f", step, loss.item())
