"""Regression, all of it in one autocast region."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(4096, 32), torch.randn(4096, 1))
loader = DataLoader(data, batch_size=128, shuffle=True)
regressor = nn.Sequential(nn.Linear(32, 256), nn.SiLU(), nn.Linear(256, 1)).cuda()
adam = torch.optim.Adam(regressor.parameters(), lr=1e-3)

for epoch in range(10):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        for features, target in loader:
            features, target = features.cuda(), target.cuda()
            error = nn.functional.mse_loss(regressor(features), target)
            adam.zero_grad()
            error.backward()
            adam.step()
    print(epoch, error.item())
