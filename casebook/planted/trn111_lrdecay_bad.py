import torch
from torch import nn, optim


def lr_at(epoch, base=0.1):
    return base * (0.1 ** (epoch // 30))


class DenseLayer(nn.Module):
    def __init__(self, cin, growth):
        super().__init__()
        self.bn, self.conv = nn.BatchNorm2d(cin), nn.Conv2d(cin, growth, 3, padding=1, bias=False)

    def forward(self, x):
        return torch.cat([x, self.conv(torch.relu(self.bn(x)))], 1)


class MiniDense(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        layers, c = [nn.Conv2d(3, 24, 3, padding=1)], 24
        for _ in range(4):
            layers.append(DenseLayer(c, 12))
            c += 12
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, classes))

    def forward(self, x):
        return self.net(x)


class Session:
    def __init__(self, device="cpu"):
        self.device = device
        self.model = MiniDense().to(device)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = optim.SGD(self.model.parameters(), lr=lr_at(0), momentum=0.9, weight_decay=1e-4, nesterov=True)

    def adjust(self, epoch):
        # a new learning rate, hence a new optimiser
        self.optimizer = optim.SGD(
            self.model.parameters(), lr=lr_at(epoch), momentum=0.9, weight_decay=1e-4, nesterov=True
        )

    def epoch(self, loader):
        self.model.train()
        for x, y in loader:
            x, y = x.to(self.device), y.to(self.device)
            self.optimizer.zero_grad()
            self.criterion(self.model(x), y).backward()
            self.optimizer.step()

    def run(self, loader, epochs=90):
        for e in range(epochs):
            self.adjust(e)
            self.epoch(loader)


if __name__ == "__main__":
    Session().run([(torch.rand(8, 3, 32, 32), torch.randint(0, 10, (8,))) for _ in range(4)], 3)
