"""Grades essays from bags of words; keeps the history of the validation loss."""

import argparse

import torch
from torch import nn


class Grader(nn.Module):
    def __init__(self, words, grades, width=64):
        super().__init__()
        self.bag = nn.EmbeddingBag(words, width, mode="mean")
        self.layers = nn.Sequential(nn.BatchNorm1d(width), nn.Dropout(0.4), nn.Linear(width, grades))

    def forward(self, essays):
        return self.layers(self.bag(essays))


class Run:
    def __init__(self, model, rate):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        self.model.train()

    def loss(self, batch):
        essays, grades = batch
        return nn.functional.cross_entropy(self.model(essays), grades)

    def fit(self, batches):
        self.model.train()
        for batch in batches:
            self.optimizer.zero_grad(set_to_none=True)
            self.loss(batch).backward()
            self.optimizer.step()

    def validate(self, batches):
        scores = []
        self.model.eval()
        with torch.inference_mode():
            for batch in batches:
                scores.append(self.loss(batch).item())
        return sum(scores) / len(scores)


def essays(count, size=32):
    for _ in range(count):
        grades = torch.randint(0, 5, (size,))
        yield torch.randint(0, 200, (size, 40)) + 200 * grades[:, None], grades


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(1)
    run, history = Run(Grader(1000, 5), rate=5e-3), []
    held_out = list(essays(4))
    for _ in range(max(1, args.steps // 10)):
        run.fit(essays(10))
        history.append(run.validate(held_out))
    print(" ".join(f"{score:.3f}" for score in history))


if __name__ == "__main__":
    main()
