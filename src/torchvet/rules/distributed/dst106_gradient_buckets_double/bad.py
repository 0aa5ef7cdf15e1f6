import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
layers = [nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(3)]
model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(1024, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(20):
    x = torch.randn(16, 1024)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 5 == 4:
        print(f"step {step} loss {loss.item():.4f}")
dist.destroy_process_group()
