"""Streaming segmenter with a memory bank that lives on the module."""

from typing import Optional

import torch
from torch import Tensor, nn


class MemoryCell(nn.Module):
    def __init__(self, channels: int, slots: int = 16):
        super().__init__()
        self.slots = slots
        self.write = nn.Linear(channels * 2, channels)
        self.read = nn.MultiheadAttention(channels, 4, batch_first=True)
        self.memory: Optional[Tensor] = None

    def reset(self):
        self.memory = None

    def forward(self, feats: Tensor) -> Tensor:
        if self.memory is None:
            self.memory = feats.new_zeros(feats.size(0), self.slots, feats.size(-1))
        out, _ = self.read(feats, self.memory, self.memory)
        summary = out.mean(dim=1, keepdim=True).expand(-1, self.slots, -1)
        self.memory = torch.tanh(self.write(torch.cat([self.memory, summary], dim=-1)))
        return out


class StreamingNet(nn.Module):
    def __init__(self, dim=64, classes=10):
        super().__init__()
        self.stem = nn.Linear(32, dim)
        self.cell = MemoryCell(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        return self.head(self.cell(self.stem(x)))


def run_stream(net: StreamingNet, stream, criterion, optimizer):
    net.train()
    net.cell.reset()
    for step, (clip, target) in enumerate(stream):
        optimizer.zero_grad()
        logits = net(clip)
        loss = criterion(logits.transpose(1, 2), target)
        loss.backward(retain_graph=True)
        optimizer.step()
        if step % 100 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    net = StreamingNet()
    stream = ((torch.randn(2, 8, 32), torch.randint(0, 10, (2, 8))) for _ in range(300))
    run_stream(net, stream, nn.CrossEntropyLoss(), torch.optim.Adam(net.parameters()))
