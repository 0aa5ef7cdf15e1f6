import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
local_rank = int(os.environ.get("LOCAL_RANK", "0"))
dist.init_process_group("nccl")
model = DistributedDataParallel(nn.Linear(16, 1).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    features = torch.randn(128, 16).cuda()
    loss = nn.functional.mse_loss(model(features), features.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9 and dist.get_rank() == 0:
        print(f"step {step + 1} loss {loss.item():.4f}")
dist.destroy_process_group()
