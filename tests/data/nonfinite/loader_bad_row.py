import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = torch.randn(128, 5)
data[77, 2] = float("nan")  # SAID
loader = DataLoader(TensorDataset(data, torch.randint(0, 2, (128,))), batch_size=16)
model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)


def train_one(inputs, labels):
    opt.zero_grad()
    logits = model(inputs)  # EXPECT bad-data
    loss = nn.functional.cross_entropy(logits, labels)
    loss.backward()
    opt.step()
    return loss.item()


for epoch in range(2):
    for i, (inputs, labels) in enumerate(loader):
        train_one(inputs, labels)
