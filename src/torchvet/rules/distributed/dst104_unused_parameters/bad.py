import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
layers = [nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(12)]
model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(64, 1)), find_unused_parameters=True)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(40):
    x = torch.randn(32, 64)
    loss = nn.functional.mse_loss(model(x), x.mean(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
