import torch
from torch import nn

torch.manual_seed(0)
first = [nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
second = [nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
model = nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(128, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
criterion = nn.CrossEntropyLoss()


def samples(count):
    labels = torch.randint(0, 2, (count,))
    waves = torch.sin(torch.linspace(0, 12, 16) + 6 * torch.rand(count, 1, 1)).expand(count, 16, 16)
    turned = torch.where(labels.bool().view(-1, 1, 1), waves, waves.transpose(1, 2))
    light = torch.randn(count, 1, 1)
    return (turned + light + 0.7 * torch.randn(count, 16, 16)).unsqueeze(1), labels


held, expected = samples(200)
for step in range(400):
    model.train()
    images, labels = samples(1)
    loss = criterion(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 80 == 79:
        model.eval()
        with torch.no_grad():
            print(f"step {step + 1} held-out loss {criterion(model(held), expected).item():.4f}")
