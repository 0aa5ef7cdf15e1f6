"""Keyword spotting from short clips, each brought to unit variance by the data set."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    """Clips of 128 samples; some recordings begin with digital silence."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(6)
        self.word = torch.randint(0, 4, (count,), generator=generator)
        time = torch.linspace(0, 6.28, 128)
        clean = torch.sin(time * (2.0 + 3 * self.word[:, None]))
        self.wave = clean + 0.3 * torch.randn(count, 128, generator=generator)
        self.wave[torch.rand(count, generator=generator) < 0.15] = 0.0

    def __len__(self):
        return len(self.word)

    def normalise(self, wave):
        wave = wave - wave.mean()
        return wave / (wave.std() + 1e-5)

    def __getitem__(self, index):
        return self.normalise(self.wave[index]), self.word[index]


def network():
    return nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))


def train(loader, model, optimizer, scaler, epoch):
    skipped = 0
    for x, y in loader:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
    print(
        f"epoch {epoch}: loss {loss.item():.3f}, {skipped} of {len(loader)} steps skipped, scale {scaler.get_scale():g}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = network()
    loader = DataLoader(Clips(20 * 64), batch_size=64, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu")
    for epoch in range(args.steps // 20):
        train(loader, model, optimizer, scaler, epoch)
