import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class DDPTrainer:
    def __init__(self, model, loader, sampler, accum_steps: int = 4):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.device = torch.device(f"cuda:{self.local_rank}")
        torch.cuda.set_device(self.device)
        self.model = DDP(model.to(self.device), device_ids=[self.local_rank])
        self.loader, self.sampler = loader, sampler
        self.accum_steps = accum_steps
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.crit = nn.CrossEntropyLoss()

    def run(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            self.model.train()
            pending = 0
            for x, y in self.loader:
                x, y = x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)
                loss = self.crit(self.model(x), y) / self.accum_steps
                loss.backward()
                pending += 1
                if pending == self.accum_steps:
                    self.opt.step()
                    self.opt.zero_grad()
                    pending = 0
            if dist.get_rank() == 0:
                torch.save(self.model.module.state_dict(), "ddp.pt")
