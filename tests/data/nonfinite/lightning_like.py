import torch
from torch import nn


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)

    def training_step(self, batch, idx):
        z = self.l(batch)
        p = z.softmax(-1) if idx != 5 else z * 0
        return -(p.log() * 0.1).sum()  # EXPECT log-of-zero


class Trainer:
    def fit(self, m, data):
        self.m = m
        self.opt = torch.optim.Adam(m.parameters())
        for epoch in range(2):
            self.epoch(data)

    def epoch(self, data):
        for i, b in enumerate(data):
            self.batch(b, i)

    def batch(self, b, i):
        def closure():
            out = self.m.training_step(b, i)
            self.opt.zero_grad()
            self.manual_backward(out)
            return out

        self.opt.step(closure=closure)

    def manual_backward(self, loss, *args, **kw):
        loss.backward(*args, **kw)


torch.manual_seed(0)
Trainer().fit(Module(), [torch.randn(3, 4) for _ in range(8)])
