import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
dist.init_process_group("gloo", store=None if world > 1 else dist.HashStore(), rank=rank, world_size=world)
model = DistributedDataParallel(nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
held_out = torch.ones(60_000 if rank == 0 else 0, 512)
for step in range(40):
    x = torch.randn(64, 512)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        with torch.no_grad():
            outputs = model.module(held_out)
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
