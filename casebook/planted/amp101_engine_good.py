import torch
from torch import nn


class Engine:
    def __init__(self, net, lr, use_amp=True):
        self.net = net
        self.opt = torch.optim.AdamW(net.parameters(), lr=lr)
        self.grad_scaler = torch.amp.GradScaler("cuda", enabled=use_amp)
        self.criterion = nn.CrossEntropyLoss()

    def forward_backward(self, images, labels):
        with torch.autocast("cuda", torch.float16):
            loss = self.criterion(self.net(images), labels)
        self.grad_scaler.scale(loss).backward()
        return loss.detach()

    def apply(self):
        self.grad_scaler.unscale_(self.opt)
        nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
        self.grad_scaler.step(self.opt)
        self.grad_scaler.update()
        self.opt.zero_grad(set_to_none=True)

    def epoch(self, loader):
        total = 0.0
        for images, labels in loader:
            total += self.forward_backward(images.cuda(), labels.cuda()).item()
            self.apply()
        return total / len(loader)
