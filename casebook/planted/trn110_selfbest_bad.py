import copy

import torch
from torch import nn


class Fit:
    def __init__(self, net):
        self.net, self.best_w, self.best_l = net, None, 1e9
        self.opt = torch.optim.Adam(net.parameters())

    def run(self, tr, va):
        for _ in range(9):
            for x, y in tr:
                self.opt.zero_grad()
                nn.functional.mse_loss(self.net(x), y).backward()
                self.opt.step()
            with torch.no_grad():
                v = sum(nn.functional.mse_loss(self.net(x), y).item() for x, y in va)
            if v < self.best_l:
                self.best_l, self.best_w = v, self.net.state_dict()
        self.net.load_state_dict(self.best_w)
