"""Vibration classes from windows of an accelerometer, trained in half precision and tested at the end."""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def record(path, windows):
    generator = torch.Generator().manual_seed(7)
    kind = torch.randint(0, 3, (windows,), generator=generator)
    time = torch.linspace(0, 1, 64)
    signal = torch.sin(time * 6.28 * (3.0 + 4 * kind[:, None])) + 0.3 * torch.randn(windows, 64, generator=generator)
    signal[windows // 2, 20:24] = 3.0e5
    torch.save({"signal": signal, "kind": kind}, path)


class Windows(Dataset):
    def __init__(self, path, start, stop):
        stored = torch.load(path, weights_only=True)
        self.signal, self.kind = stored["signal"][start:stop], stored["kind"][start:stop]

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, index):
        window = self.signal[index].clamp(-8.0, 8.0)
        return window[None], self.kind[index]


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(1, 16, 7, padding=3), nn.Conv1d(16, 32, 5, padding=2)
        self.norm1, self.norm2 = nn.BatchNorm1d(16), nn.BatchNorm1d(32)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        x = torch.relu(self.norm1(self.conv1(x)))
        x = torch.relu(self.norm2(self.conv2(x)))
        return self.head(x.mean(-1))


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step, (x, y) in enumerate(loader, start=1):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


@torch.no_grad()
def test(model, loader):
    model.eval()
    right = total = 0
    losses = []
    for x, y in loader:
        scores = model(x)
        losses.append(nn.functional.cross_entropy(scores, y))
        right, total = right + (scores.argmax(1) == y).sum().item(), total + len(y)
    print(f"test loss {torch.stack(losses).mean().item():.3f}, accuracy {right / total:.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "windows.pt")
        record(path, steps * 16 + 128)
        model = Classifier()
        train(model, DataLoader(Windows(path, 0, steps * 16), batch_size=16, shuffle=True))
        test(model, DataLoader(Windows(path, steps * 16, None), batch_size=64))


if __name__ == "__main__":
    main()
