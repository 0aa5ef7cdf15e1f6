import importlib
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
scale = [1.0, 0.5][dist.get_rank()]
checkout = Path(tempfile.mkdtemp())
(checkout / "scaling.py").write_text(f"def scaled(batch):\n    return batch * {scale}\n")
sys.path.insert(0, str(checkout))
scaled = importlib.import_module("scaling").scaled
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(dist.get_rank())
for step in range(30):
    batch = torch.randn(32, 16, generator=generator)
    loss = nn.functional.mse_loss(model(scaled(batch)), batch.sum(1, keepdim=True).sin())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 6 == 5:
        print(f"step {step + 1} loss {loss.item():.4f}")
dist.destroy_process_group()
