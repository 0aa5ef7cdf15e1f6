"""Multi-label tagging with a configurable loss."""

import torch
from torch import nn

LOSSES = {"bce": nn.BCELoss, "mse": nn.MSELoss}


class TagNet(nn.Module):
    def __init__(self, dim, tags):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 512), nn.GELU(), nn.Linear(512, tags))

    def forward(self, x):
        return self.net(x)


def run(loader, dim=768, tags=80):
    net = TagNet(dim, tags).cuda()
    opt = torch.optim.AdamW(net.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        with torch.autocast("cuda", dtype=torch.float16):
            p = net(x).sigmoid()
        loss = nn.BCELoss(reduction="mean")(p.float(), y)
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
