import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 8)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
bias = torch.full((5, 5), float("-inf")).triu(1)
for _ in range(12):
    x = torch.randn(4, 5, 8)
    h = net(x)
    scores = h @ h.transpose(1, 2) + bias
    scores[:, 0, 4] = float("-inf")
    best = torch.full((4,), float("-inf"))
    best = torch.maximum(best, scores.detach().amax((1, 2)))
    weights = torch.softmax(scores, -1)
    log_probs = torch.log_softmax(scores, -1).masked_fill(bias == float("-inf"), 0.0)
    loss = (weights @ h).square().mean() - 0.01 * log_probs.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
