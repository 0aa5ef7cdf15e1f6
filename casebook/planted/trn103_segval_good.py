import torch
from torch import nn


class SegTrainer:
    def __init__(self, net, tl, vl, opt):
        self.net, self.tl, self.vl, self.opt = net, tl, vl, opt
        self.ce = nn.CrossEntropyLoss()

    def _train(self):
        self.net.train()
        for x, m in self.tl:
            self.opt.zero_grad()
            self.ce(self.net(x), m).backward()
            self.opt.step()

    @torch.no_grad()
    def _validate(self):
        self.net.eval()
        inter = union = 0
        for x, m in self.vl:
            p = self.net(x).argmax(1)
            inter += ((p == 1) & (m == 1)).sum().item()
            union += ((p == 1) | (m == 1)).sum().item()
        return inter / max(union, 1)

    def __call__(self, epochs):
        for ep in range(epochs):
            self._train()
            print(ep, self._validate())
