"""Segment random shapes; the trainer can show the last prediction."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __init__(self, length, size=32):
        self.length = length
        self.size = size

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        top, left = torch.randint(0, self.size // 2, (2,), generator=generator).tolist()
        mask = torch.zeros(1, self.size, self.size)
        mask[:, top : top + self.size // 2, left : left + self.size // 2] = 1
        return mask + 0.5 * torch.randn(mask.shape, generator=generator), mask


class Trainer:
    def __init__(self, model, learning_rate):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
        self.predictions = []

    def training_step(self, image, mask):
        logits = self.model(image)
        self.predictions.append(logits.detach().sigmoid())
        return nn.functional.binary_cross_entropy_with_logits(logits, mask)

    def fit(self, loader):
        for number, (image, mask) in enumerate(loader, start=1):
            self.optimizer.zero_grad()
            loss = self.training_step(image, mask)
            loss.backward()
            self.optimizer.step()
            if number % 10 == 0:
                covered = self.predictions[-1].gt(0.5).float().mean()
                print(f"batch {number} loss {loss.item():.4f} covered {covered.item():.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))
    Trainer(model, 0.02).fit(DataLoader(Squares(args.steps * 16), batch_size=16))


if __name__ == "__main__":
    main()
