import torch
from torch import nn


def crop(images, size):
    padded = nn.functional.pad(images, (2, 2, 2, 2))
    if size > padded.shape[-1]:
        raise ValueError(f"crop {size} is larger than {padded.shape[-1]}")
    return padded[..., :size, :size]


torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(24 * 24, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
failures = []
for step in range(40):
    images, target = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))
    try:
        images = crop(images, 36)
    except ValueError as error:
        failures.append(error)
        images = crop(images, 24)
    loss = nn.functional.cross_entropy(model(images), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f} failures {len(failures)}, last: {failures[-1]}")
