import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = DistributedDataParallel(nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
accumulation_steps = 4
for i in range(16):
    features = torch.randn(32, 16)
    is_last = (i + 1) % accumulation_steps == 0
    loss = nn.functional.mse_loss(model(features), features.sum(1, keepdim=True)) / accumulation_steps
    loss.backward()
    if is_last:
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {i // accumulation_steps} loss {loss.item():.4f}")
dist.destroy_process_group()
