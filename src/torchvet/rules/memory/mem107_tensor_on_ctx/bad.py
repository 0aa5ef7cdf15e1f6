import torch
from torch import nn


class Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.result = torch.sigmoid(x)
        return ctx.result

    @staticmethod
    def backward(ctx, gradient):
        result = ctx.result
        return gradient * result * (1 - result)


torch.manual_seed(0)
first, second = nn.Linear(64, 256), nn.Linear(256, 10)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
for step in range(40):
    features, target = torch.randn(256, 64), torch.randint(0, 10, (256,))
    loss = nn.functional.cross_entropy(second(Squash.apply(first(features))), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
