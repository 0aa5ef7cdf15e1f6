import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(40):
    x = torch.randn(64, 16) * (1 if step < 15 else 100)
    y = x[:, :4].argmax(1)
    log_probs = torch.log(torch.softmax(model(x), dim=1))
    loss = nn.functional.nll_loss(log_probs, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
