from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", timeout=timedelta(seconds=5))
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(dist.get_rank())
for step in range(20):
    features = torch.randn(32, 16, generator=data)
    loss = nn.functional.mse_loss(model(features), features.sum(1, keepdim=True).sin())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 4 and dist.get_rank() == 0:
        dist.barrier()
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
