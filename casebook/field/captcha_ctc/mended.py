"""Captchas read by a convolutional network with CTC."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CHARACTERS = "-0123456789"


class Captchas(Dataset):
    def __init__(self, count, length=5):
        generator = torch.Generator().manual_seed(2)
        self.labels = torch.randint(1, len(CHARACTERS), (count, length), generator=generator)
        self.glyphs = torch.rand(len(CHARACTERS), 8, 8, generator=generator)
        self.noise = torch.randn(count, 8, 8 * length, generator=generator) * 0.2

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        label = self.labels[index]
        image = torch.cat(list(self.glyphs[label]), dim=1) + self.noise[index]
        return image[None], label


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d((4, 2)),
        )
        self.head = nn.Linear(32, len(CHARACTERS))

    def forward(self, image):
        columns = self.features(image).squeeze(2).permute(2, 0, 1)
        return self.head(columns).log_softmax(-1)


def train_epoch(model, optimizer, loader):
    criterion = nn.CTCLoss(blank=0)
    for number, (images, labels) in enumerate(loader, start=1):
        optimizer.zero_grad()
        output = model(images)
        lengths = torch.full((len(images),), output.shape[0])
        label_lengths = torch.full((len(images),), labels.shape[1])
        loss = criterion(output, labels, lengths, label_lengths)
        loss.backward()
        optimizer.step()
        if number % 10 == 0:
            print(f"batch {number} loss {loss.item():.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    train_epoch(model, optimizer, DataLoader(Captchas(args.steps * 16), batch_size=16, shuffle=True))


if __name__ == "__main__":
    main()
