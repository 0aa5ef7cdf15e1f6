"""Multi-label tagging of audio clips."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Tagger(nn.Module):
    def __init__(self, mels=64, tags=50):
        super().__init__()
        self.c1, self.c2 = nn.Conv1d(mels, 128, 5, 2), nn.Conv1d(128, 128, 5, 2)
        self.norm = nn.LayerNorm(128)
        self.out = nn.Linear(128, tags)

    def forward(self, spec):
        h = F.relu(self.c2(F.relu(self.c1(spec)))).mean(-1)
        scores = self.out(self.norm(h))
        return torch.sigmoid(scores)


def compute_loss(outputs, targets, pos_weight):
    return F.binary_cross_entropy_with_logits(outputs, targets, pos_weight=pos_weight)


def train(epochs=2):
    net = Tagger()
    opt = torch.optim.AdamW(net.parameters(), lr=3e-4)
    w = torch.full((50,), 10.0)
    batches = [(torch.randn(16, 64, 200), (torch.rand(16, 50) > 0.95).float()) for _ in range(20)]
    for epoch in range(epochs):
        net.train()
        for spec, tags in batches:
            opt.zero_grad(set_to_none=True)
            out = net(spec)
            loss = compute_loss(out, tags, w)
            loss.backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            preds = torch.cat([net(s) for s, _ in batches])
        print(epoch, loss.item(), preds.mean().item())


if __name__ == "__main__":
    train()
