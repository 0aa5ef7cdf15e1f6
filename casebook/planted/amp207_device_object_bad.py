"""autocast is given the device itself."""

import torch
from torch import nn


class Trainer:
    def __init__(self, model):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.loss_fn = nn.MSELoss()

    def fit(self, loader):
        for x, y in loader:
            x, y = x.to(self.device), y.to(self.device)
            self.optimizer.zero_grad()
            with torch.autocast(device_type=self.device, dtype=torch.bfloat16):
                loss = self.loss_fn(self.model(x), y)
            loss.backward()
            self.optimizer.step()
