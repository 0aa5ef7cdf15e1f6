"""A small leak: losses are kept with their graphs."""

import torch


class Trainer:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.losses = []

    def fit(self, loader) -> None:
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            with_noise = self.model(x + 0.1 * torch.randn_like(x))
            self.losses.append(torch.nn.functional.mse_loss(with_noise, y))


data = torch.utils.data.TensorDataset(torch.randn(2560, 64), torch.randn(2560, 1))
Trainer().fit(torch.utils.data.DataLoader(data, batch_size=64))
