"""A module in the manner of Lightning that starts a new list with each validation."""

import argparse

import torch
from torch import nn


class LightningModule(nn.Module):
    def on_train_epoch_end(self):
        pass

    def on_validation_epoch_end(self):
        pass


class Loop:
    def __init__(self, every):
        self.every = every

    def fit(self, module, batches, held_out):
        optimizer = module.configure_optimizers()
        for number, batch in enumerate(batches, start=1):
            module.train()
            loss = module.training_step(batch, number)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % self.every == 0:
                module.eval()
                with torch.no_grad():
                    for index, one in enumerate(held_out):
                        module.validation_step(one, index)
                module.on_validation_epoch_end()


class Detector(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(16, 1)
        self.scores = []

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.binary_cross_entropy_with_logits(self.net(x), y)

    def validation_step(self, batch, index):
        if index == 0:
            self.scores = []
        x, _ = batch
        self.scores.append(self.net(x))

    def on_validation_epoch_end(self):
        print(f"spread {torch.cat(self.scores).std().item():.4f}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-2)


def batches(count, size):
    for _ in range(count):
        x = torch.randn(size, 16)
        yield x, (x[:, :1] > 0).float()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    Loop(every=5).fit(Detector(), batches(args.steps, 64), list(batches(2, 256)))
