import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        y = torch.randn(1, generator=g)
        if i == 41:
            y = y / 0 * 0  # SAID
        return {"x": torch.randn(3, generator=g), "y": y}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 1)

    def forward(self, batch):
        return nn.functional.mse_loss(self.l(batch["x"]), batch["y"])  # EXPECT bad-data


model = Model()
opt = torch.optim.SGD(model.parameters(), 0.01)
if __name__ == "__main__":
    for batch in DataLoader(Rows(), batch_size=8, num_workers=2):
        loss = model(batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
