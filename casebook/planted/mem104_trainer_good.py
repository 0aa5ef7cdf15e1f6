"""A class that trains with mixed precision and validates every epoch."""

import torch
from torch import nn


class Engine:
    def __init__(self, network: nn.Module, train_data, valid_data):
        self.network = network
        self.train_data, self.valid_data = train_data, valid_data
        self.optim = torch.optim.Adam(self.network.parameters(), lr=3e-4)
        self.scaler = torch.amp.GradScaler("cuda")
        self.criterion = nn.MSELoss()

    def run(self, epochs):
        for epoch in range(epochs):
            self.train_epoch()
            print(epoch, self.validate())

    def train_epoch(self):
        self.network.train()
        for signal, target in self.train_data:
            self.optim.zero_grad()
            with torch.autocast("cuda", torch.float16):
                loss = self.criterion(self.network(signal.cuda()).float(), target.cuda())
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optim)
            self.scaler.update()

    @torch.no_grad()
    def validate(self):
        self.network.eval()
        losses = []
        for signal, target in self.valid_data:
            predicted = self.network(signal.cuda())
            losses.append(self.criterion(predicted, target.cuda()).item())
        return sum(losses) / len(losses)


def start(train_data, valid_data):
    network = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 1))
    Engine(network.cuda(), train_data, valid_data).run(30)


if __name__ == "__main__":
    batches = [(torch.randn(64, 512), torch.randn(64, 1)) for _ in range(100)]
    start(batches, batches[:10])
