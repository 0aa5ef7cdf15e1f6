import io

import torch
import torch.distributed as dist
from torch import nn

torch.manual_seed(0)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
for step in range(8):
    x = torch.randn(64, 64)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.4f}")
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), io.BytesIO())
dist.destroy_process_group()
