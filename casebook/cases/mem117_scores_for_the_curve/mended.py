"""A module in the manner of Lightning, with as much of a loop as it needs."""

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
    def __init__(self, features, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, 1))
        self.scores, self.truth = [], []

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.binary_cross_entropy_with_logits(self.net(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        scores = self.net(x)
        self.scores.append(scores)
        self.truth.append(y)

    def on_validation_epoch_end(self):
        scores, truth = torch.cat(self.scores).flatten(), torch.cat(self.truth).flatten()
        ahead = scores[truth == 1][:200, None] > scores[truth == 0][None, :200]
        print(f"ranked right {ahead.float().mean().item():.4f}")
        self.scores.clear()
        self.truth.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def batches(count, size):
    for _ in range(count):
        x = torch.randn(size, 16)
        yield x, (x[:, :1] + 0.5 * torch.randn(size, 1) > 0).float()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    held_out = list(batches(4, 4096))
    Loop(every=3).fit(Detector(16, 32), batches(args.steps, 64), held_out)


if __name__ == "__main__":
    main()
