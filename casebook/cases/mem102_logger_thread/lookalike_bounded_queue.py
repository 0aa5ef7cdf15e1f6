"""Feature maps go to a background thread that logs their statistics."""

import argparse
import queue
import threading

import torch
from torch import nn


class Logger(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.inbox = queue.Queue(maxsize=4)
        self.received = []
        self.means = []

    def run(self):
        while True:
            step, features = self.inbox.get()
            if step is None:
                return
            self.means.append(features.mean().item())
            self.received.append((step, self.means[-1]))
            features = None
            self.inbox.task_done()

    def close(self):
        self.inbox.put((None, None))
        self.join()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 256), nn.ReLU())
        self.decoder = nn.Linear(256, 64)

    def forward(self, x):
        features = self.encoder(x)
        return self.decoder(features), features


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    net, logger = Net(), Logger()
    logger.start()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for step in range(args.steps):
        x = torch.randn(128, 64)
        rebuilt, features = net(x)
        loss = nn.functional.mse_loss(rebuilt, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logger.inbox.put((step, features.detach()))
        logger.inbox.join()
        if (step + 1) % 10 == 0:
            print(f"{step + 1} loss {loss.item():.4f} mean {logger.means[-1]:.4f}")
    logger.close()


if __name__ == "__main__":
    main()
