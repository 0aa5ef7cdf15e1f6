"""Inference script: write predictions of a trained classifier to a CSV file."""

import csv
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self, folder: Path):
        self.paths = sorted(folder.glob("*.npy"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return torch.from_numpy(np.load(self.paths[i])).float(), self.paths[i].stem


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU())
        self.fc = nn.Linear(64, 5)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))


class Predictor:
    def __init__(self, weights: str, device: str = "cuda:0"):
        self.device = torch.device(device)
        self.net = Net()
        self.net.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
        self.net.to(self.device).eval()

    def predict_batch(self, x):
        logits = self.net(x.to(self.device))
        prob, cls = torch.softmax(logits, dim=1).max(dim=1)
        return prob.detach().cpu().numpy(), cls.cpu().numpy()

    def predict(self, folder: Path, out: Path):
        loader = DataLoader(Frames(folder), batch_size=64, num_workers=4)
        with out.open("w", newline="") as fh:
            w = csv.writer(fh)
            w.writerow(["id", "label", "score"])
            for x, ids in loader:
                prob, cls = self.predict_batch(x)
                for row in zip(ids, cls, prob):
                    w.writerow(row)


if __name__ == "__main__":
    Predictor("net.pt").predict(Path("frames"), Path("submission.csv"))
