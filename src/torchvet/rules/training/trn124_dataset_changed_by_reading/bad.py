import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __init__(self):
        self.features = 3 * torch.randn(256, 16)
        self.targets = self.features[:, :4].sum(1, keepdim=True)

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        sample = self.features[index]
        sample.div_(3)
        return sample, self.targets[index]


torch.manual_seed(0)
loader = DataLoader(Samples(), batch_size=32, shuffle=True)
model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(12):
    for features, targets in loader:
        loss = nn.functional.mse_loss(model(features), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 3 == 2:
        print(f"epoch {epoch + 1} loss {loss.item():.4f}")
