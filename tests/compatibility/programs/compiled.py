"""A compiled model and a step that is not compiled: every loss, bit for bit, and how often it was compiled."""

import torch
import torch._dynamo.utils

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
fast = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    loss = fast(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
print(dict(torch._dynamo.utils.counters["frames"]))
