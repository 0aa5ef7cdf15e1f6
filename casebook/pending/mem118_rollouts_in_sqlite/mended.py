"""A value network learns from rollouts; every rollout goes into a table, from which batches are drawn."""

import argparse
import sqlite3

import numpy as np
import torch
from torch import nn

ROWS, WIDTH = 64, 512


class Rollouts:
    def __init__(self, path=":memory:"):
        self.database = sqlite3.connect(path)
        self.database.execute("CREATE TABLE rollouts (step INTEGER PRIMARY KEY, observations BLOB)")

    def add(self, step, observations):
        self.database.execute("INSERT INTO rollouts VALUES (?, ?)", (step, observations.numpy().tobytes()))
        self.database.execute("DELETE FROM rollouts WHERE step <= ?", (step - 8,))

    def draw(self, step):
        (blob,) = self.database.execute("SELECT observations FROM rollouts WHERE step = ?", (step,)).fetchone()
        return torch.from_numpy(np.frombuffer(blob, dtype=np.float32).reshape(ROWS, WIDTH).copy())


class Learner:
    def __init__(self, rollouts):
        self.rollouts = rollouts
        self.network = nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, 1))
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-3)

    def learn(self, step):
        self.rollouts.add(step, torch.randn(ROWS, WIDTH))
        x = self.rollouts.draw(step - step % 3)
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.network(x), x.mean(1, keepdim=True))
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    learner = Learner(Rollouts())
    for step in range(args.steps):
        loss = learner.learn(step)
        if step % 20 == 19:
            print(f"step {step + 1} loss {loss:.4f}")


if __name__ == "__main__":
    main()
