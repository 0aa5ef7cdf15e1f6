import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
dist.init_process_group("gloo", store=None if world > 1 else dist.HashStore(), rank=rank, world_size=world)
model = DistributedDataParallel(nn.Linear(256, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = []
for step in range(160):
    x = torch.randn(64, 256)
    loss = nn.functional.mse_loss(model(x), x[:, :64])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        history.append(model.module.weight.grad.numpy().tobytes())
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
