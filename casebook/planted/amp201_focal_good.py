"""Long-tailed classification with a focal loss of our own."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class FocalLoss(nn.Module):
    def __init__(self, gamma=2.0, weight=None):
        super().__init__()
        self.gamma = gamma
        self.register_buffer("weight", weight)

    def forward(self, logits, target):
        ce = F.cross_entropy(logits, target, weight=self.weight, reduction="none")
        pt = torch.exp(-ce)
        return ((1 - pt) ** self.gamma * ce).mean()


def train(net, loader, epochs=10):
    net = net.cuda()
    focal = FocalLoss().cuda()
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(epochs):
        for image, label in loader:
            image, label = image.cuda(non_blocking=True), label.cuda(non_blocking=True)
            opt.zero_grad(set_to_none=True)
            with torch.autocast("cuda"):
                logits = net(image)
                loss = focal(logits, label)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
    return net


if __name__ == "__main__":
    data = [(torch.randn(8, 3, 32, 32), torch.randint(10, (8,))) for _ in range(4)]
    train(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)), data)
