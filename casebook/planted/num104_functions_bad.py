"""A network is halved to fit the card, then trained with RMSprop."""

import torch
import torch.nn.functional as F
from torch import optim
from torchvision.models import vit_b_16


def build(device):
    net = vit_b_16(num_classes=10)
    net = net.to(device)
    net.half()
    optimizer = optim.RMSprop([p for p in net.parameters() if p.requires_grad], lr=1e-5)
    return net, optimizer


def train(loader, device):
    net, optimizer = build(device)
    for images, labels in loader:
        loss = F.cross_entropy(net(images.to(device).half()).float(), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
