"""Rotations regressed from observed points with the geodesic distance as loss."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def rotation_from_6d(x):
    first = nn.functional.normalize(x[..., :3], dim=-1)
    second = x[..., 3:] - (first * x[..., 3:]).sum(-1, keepdim=True) * first
    second = nn.functional.normalize(second, dim=-1)
    return torch.stack([first, second, torch.linalg.cross(first, second)], dim=-1)


class GeodesicLoss(nn.Module):
    def forward(self, predicted, target):
        relative = predicted.transpose(-1, -2) @ target
        trace = relative.diagonal(dim1=-2, dim2=-1).sum(-1)
        cosine = torch.clamp((trace - 1) / 2, -1.0 + 1e-6, 1.0 - 1e-6)
        return torch.acos(cosine).mean()


class PointClouds(Dataset):
    """A cloud and its rotation; the first of every eight is the reference pose itself."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(4)
        self.reference = torch.randn(12, 3, generator=generator)
        identity = torch.tensor([1.0, 0, 0, 0, 1, 0])
        turned = identity + 0.6 * torch.randn(count, 6, generator=generator)
        turned[::8] = identity
        self.rotations = rotation_from_6d(turned)

    def __len__(self):
        return len(self.rotations)

    def __getitem__(self, index):
        rotation = self.rotations[index]
        return (self.reference @ rotation.T).flatten(), rotation


class PoseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(36, 128), nn.ReLU(), nn.Linear(128, 6))
        nn.init.zeros_(self.body[-1].weight)
        with torch.no_grad():
            self.body[-1].bias.copy_(torch.tensor([1.0, 0, 0, 0, 1, 0]))

    def forward(self, cloud):
        return rotation_from_6d(self.body(cloud))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model, criterion = PoseNet(), GeodesicLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(PointClouds(args.steps * 32), batch_size=32, shuffle=True)
    for step, (cloud, rotation) in enumerate(loader, start=1):
        loss = criterion(model(cloud), rotation)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"step {step} angle {torch.rad2deg(loss).item():.2f}")


if __name__ == "__main__":
    main()
