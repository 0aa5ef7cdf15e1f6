import numpy as np
import torch
import torch.nn as nn


def exp_map(v, eps=1e-8):
    """Axis-angle to rotation matrices (Rodrigues)."""
    sq = (v * v).sum(-1)
    theta = torch.sqrt(sq)
    a = torch.where(theta > eps, torch.sin(theta) / theta, torch.ones_like(theta))
    b = torch.where(theta > eps, (1 - torch.cos(theta)) / sq, 0.5 * torch.ones_like(theta))
    zero = torch.zeros_like(v[..., 0])
    x, y, z = v.unbind(-1)
    k = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).view(*v.shape[:-1], 3, 3)
    eye = torch.eye(3, device=v.device).expand_as(k)
    return eye + a[..., None, None] * k + b[..., None, None] * (k @ k)


class PoseRefiner(nn.Module):
    def __init__(self, n_views):
        super().__init__()
        self.rot = nn.Parameter(torch.zeros(n_views, 3))
        self.trans = nn.Parameter(torch.zeros(n_views, 3))

    def forward(self, points, view):
        return points @ exp_map(self.rot[view]).mT + self.trans[view][:, None]


def register(sources, targets, iters=500):
    refiner = PoseRefiner(len(sources))
    opt = torch.optim.Adam(refiner.parameters(), lr=1e-2)
    src = torch.as_tensor(np.stack(sources), dtype=torch.float32)
    dst = torch.as_tensor(np.stack(targets), dtype=torch.float32)
    for i in range(iters):
        moved = refiner(src, torch.arange(len(src)))
        loss = (moved - dst).abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 100 == 0:
            print(i, loss.item())
    return refiner
