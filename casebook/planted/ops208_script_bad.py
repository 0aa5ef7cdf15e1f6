# Linear regression by hand.
import torch

torch.manual_seed(0)
x = torch.randn(256, 8)
y = x @ torch.randn(8, 1)
w = torch.zeros(8, 1, requires_grad=True)
for step in range(200):
    loss = ((x @ w - y) ** 2).mean()
    loss.backward()
    w -= 0.1 * w.grad
    w.grad = None
    if step % 50 == 0:
        print(step, loss.item())
