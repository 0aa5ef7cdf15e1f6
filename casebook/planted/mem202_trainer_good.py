"""Segmentation with a metric on the masks of each step."""

import torch
from torch import nn


class Segmenter:
    def __init__(self, net: nn.Module, metric):
        self.net = net
        self.metric = metric
        self.optim = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def epoch(self, loader):
        for images, masks in loader:
            self.optim.zero_grad(set_to_none=True)
            output = self.net(images)
            loss = nn.functional.binary_cross_entropy_with_logits(output, masks)
            loss.backward()
            self.optim.step()
            predicted = torch.sigmoid(output.detach())
            self.metric.update(predicted, masks)
            del predicted
