import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)
patterns, label = torch.randn(4, 8), torch.randint(0, 4, (320,))
signals = torch.cat([patterns[label], torch.zeros(320, 24)], 1) + 0.5 * torch.randn(320, 32)


class Waves(TensorDataset):
    def __getitem__(self, index):
        signal, label = super().__getitem__(index)
        return self.transform(signal)[None], label


def moved(signal):
    return signal.roll(int(torch.randint(0, 32, ())))


whole = Waves(signals, label)
whole.transform = moved
train, held_out = random_split(whole, [256, 64])
held_out.dataset.transform = torch.clone
model = nn.Sequential(nn.Conv1d(1, 16, 8), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 25, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
test = torch.stack([moved(signal)[None] for signal in signals[held_out.indices]])
plain, answers = next(iter(DataLoader(held_out, batch_size=64)))
for epoch in range(12):
    for signal, target in DataLoader(train, batch_size=32, shuffle=True):
        loss = nn.functional.cross_entropy(model(signal), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    right = [(model(x).argmax(1) == answers).float().mean().item() for x in (plain, test)]
    print(f"epoch {epoch} loss {loss.item():.4f} held out {right[0]:.3f}, moved {right[1]:.3f}")
