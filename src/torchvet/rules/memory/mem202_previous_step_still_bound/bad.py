import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(1500, 32), nn.Linear(32, 1500))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
confidence = 0.0
for step in range(40):
    tokens, following = torch.randint(0, 1500, (2, 256))
    logits = model(tokens)
    loss = nn.functional.cross_entropy(logits, following)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    probabilities = logits.detach().softmax(1)
    confidence += probabilities.max(1).values.mean().item()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f} confidence {confidence / (step + 1):.6f}")
