"""Pose refinement: rotation matrices are turned into quaternions and compared with the measured ones."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def quaternion_to_matrix(q):
    w, x, y, z = nn.functional.normalize(q, dim=-1).unbind(-1)
    rows = [
        1 - 2 * (y * y + z * z),
        2 * (x * y - z * w),
        2 * (x * z + y * w),
        2 * (x * y + z * w),
        1 - 2 * (x * x + z * z),
        2 * (y * z - x * w),
        2 * (x * z - y * w),
        2 * (y * z + x * w),
        1 - 2 * (x * x + y * y),
    ]
    return torch.stack(rows, -1).view(*q.shape[:-1], 3, 3)


def matrix_to_quaternion(m):
    zero = m.new_zeros(())
    a, b, c = m[..., 0, 0], m[..., 1, 1], m[..., 2, 2]
    w = 0.5 * torch.sqrt(torch.max(zero, 1 + a + b + c))
    x = 0.5 * torch.sqrt(torch.max(zero, 1 + a - b - c))
    y = 0.5 * torch.sqrt(torch.max(zero, 1 - a + b - c))
    z = 0.5 * torch.sqrt(torch.max(zero, 1 - a - b + c))
    x = torch.copysign(x, m[..., 2, 1] - m[..., 1, 2])
    y = torch.copysign(y, m[..., 0, 2] - m[..., 2, 0])
    z = torch.copysign(z, m[..., 1, 0] - m[..., 0, 1])
    return torch.stack([w, x, y, z], -1)


class PoseNet(nn.Module):
    """Predicts a correction to an initial rotation; it begins with none."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 9))
        nn.init.zeros_(self.body[-1].weight)
        nn.init.zeros_(self.body[-1].bias)

    def forward(self, features):
        return torch.eye(3) + self.body(features).view(-1, 3, 3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    args = parser.parse_args()
    torch.manual_seed(0)
    features = torch.randn(args.steps * 32, 6)
    axis = torch.tanh(features[:, :3]) * 0.4
    wanted = nn.functional.normalize(torch.cat([torch.ones(len(axis), 1), axis], 1), dim=-1)
    loader = DataLoader(TensorDataset(features, wanted), batch_size=32)
    model = PoseNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step, (x, target) in enumerate(loader, 1):
        quaternion = matrix_to_quaternion(model(x))
        loss = (quaternion - target).square().sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    main()
