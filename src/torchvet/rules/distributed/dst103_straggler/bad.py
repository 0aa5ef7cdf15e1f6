import os

import torch
import torch.distributed as dist
from torch import nn

torch.manual_seed(0)
alone = {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
dist.init_process_group("gloo", **alone)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 4096), nn.ReLU(), nn.Linear(4096, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
held_out, errors = torch.randn(512, 64), []
for step in range(60):
    x = torch.randn(64, 64)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.4f}")
    if dist.get_rank() == 0:
        with torch.no_grad():
            error = nn.functional.mse_loss(model.module(held_out), held_out.sum(1, keepdim=True))
        errors.append(error.item())
dist.destroy_process_group()
