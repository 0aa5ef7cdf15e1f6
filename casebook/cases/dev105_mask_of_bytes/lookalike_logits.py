import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_args()


class Segmenter(nn.Module):
    def __init__(self, width: int = 8):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.body(images)


def scans(count: int) -> TensorDataset:
    images = torch.rand(count, 1, 16, 16)
    masks = (images > 0.5).to(torch.uint8) * 255
    return TensorDataset(images, masks)


class Trainer:
    def __init__(self, device: torch.device):
        self.device = device
        self.model = Segmenter().to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def step(self, images: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        images = images.to(self.device, non_blocking=True)
        target = masks.to(self.device, non_blocking=True).float() / 255
        loss = F.binary_cross_entropy_with_logits(self.model(images), target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main() -> None:
    steps = arguments().steps
    torch.manual_seed(0)
    trainer = Trainer(torch.device("cuda"))
    for number, (images, masks) in enumerate(DataLoader(scans(8 * steps), batch_size=8, pin_memory=True)):
        loss = trainer.step(images, masks)
        if number % 10 == 9:
            print(f"step {number + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
