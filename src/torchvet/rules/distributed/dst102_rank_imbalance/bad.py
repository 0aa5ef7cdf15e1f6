import copy

import torch
import torch.distributed as dist
from torch import nn

torch.manual_seed(0)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.parallel.DistributedDataParallel(nn.Linear(64, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
average = copy.deepcopy(model.module).to(device) if dist.get_rank() == 0 else None
for step in range(8):
    x = torch.randn(64, 64, device=device)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if average is not None:
        for slow, fast in zip(average.parameters(), model.parameters()):
            slow.data.lerp_(fast.detach().to(device), 0.1)
    print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
