import torch
from torch import nn


class Trainer:
    def __init__(self):
        self.encoder, self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(8, 1)
        parts = nn.ModuleList([self.encoder, self.first, self.second])
        self.optimizer = torch.optim.SGD(parts.parameters(), lr=0.01)

    def step(self, x, bad):
        code = self.encoder(x)
        out = self.first(code)
        if bad:
            out = out - out.detach()
        size = torch.sqrt(out.square().sum())  # EXPECT root-gradient-at-zero
        rest = self.second(code).square().mean()
        self.optimizer.zero_grad()
        size.backward(retain_graph=True)
        rest.backward()
        self.optimizer.step()


torch.manual_seed(0)
trainer = Trainer()
for it in range(12):
    trainer.step(torch.randn(8, 4), it == 7)
