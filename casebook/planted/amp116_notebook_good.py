"""Denoiser with a one-cycle schedule."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.cuda import amp

net = nn.Sequential(
    nn.Conv2d(3, 64, 3, padding=1),
    nn.BatchNorm2d(64),
    nn.ReLU(),
    nn.Conv2d(64, 64, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(64, 3, 3, padding=1),
).cuda()
adam = torch.optim.Adam(net.parameters(), lr=1e-3)
cycle = torch.optim.lr_scheduler.OneCycleLR(adam, max_lr=1e-3, total_steps=30000)
amp_scaler = amp.GradScaler()
clean = torch.rand(4096, 3, 64, 64)
history = []

for epoch in range(30):
    order = torch.randperm(len(clean))
    for chunk in order.split(32):
        target = clean[chunk].cuda()
        noisy = target + 0.1 * torch.randn_like(target)
        with amp.autocast():
            restored = net(noisy)
            mse = F.mse_loss(restored.float(), target)
        adam.zero_grad()
        amp_scaler.scale(mse).backward()
        before = amp_scaler.get_scale()
        amp_scaler.step(adam)
        amp_scaler.update()
        if amp_scaler.get_scale() >= before:
            cycle.step()
        history.append(mse.detach())
    print(epoch, torch.stack(history[-128:]).mean().item())
