"""Fine-tune a ViT on an image folder."""

import argparse
import logging
import math
from pathlib import Path

import torch
import torch.nn as nn
from torch.amp import GradScaler, autocast
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

log = logging.getLogger(__name__)


class Finetuner:
    def __init__(self, model: nn.Module, args: argparse.Namespace) -> None:
        self.model = model.to(args.device)
        self.args = args
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=args.lr, weight_decay=0.05)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
        self.scaler = GradScaler("cuda", enabled=args.amp)

    def fit_epoch(self, loader: DataLoader, epoch: int) -> float:
        self.model.train()
        running = 0.0
        for step, (images, labels) in enumerate(loader):
            images = images.to(self.args.device, non_blocking=True)
            labels = labels.to(self.args.device, non_blocking=True)
            with autocast("cuda", enabled=self.args.amp):
                loss = self.criterion(self.model(images), labels) / self.args.accum
            self.scaler.scale(loss).backward()
            if (step + 1) % self.args.accum == 0:
                if self.args.max_norm is not None:
                    nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_norm)
                self.scaler.step(self.optim)
                self.scaler.update()
                self.optim.zero_grad(set_to_none=True)
            if step % 100 == 0:
                running = loss.item() * self.args.accum
                if not math.isfinite(running):
                    raise RuntimeError(f"loss is {running} in epoch {epoch}")
                log.info("epoch %d step %d loss %.4f", epoch, step, running)
        return running

    def save(self, path: Path) -> None:
        state = {"model": self.model.state_dict(), "optim": self.optim.state_dict(), "scaler": self.scaler.state_dict()}
        torch.save(state, path)


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--data", type=Path, required=True)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--accum", type=int, default=4)
    p.add_argument("--max-norm", type=float, default=1.0)
    p.add_argument("--amp", action="store_true")
    p.add_argument("--device", default="cuda")
    args = p.parse_args()
    tf = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])
    loader = DataLoader(
        datasets.ImageFolder(args.data, tf), batch_size=64, shuffle=True, num_workers=8, pin_memory=True
    )
    tuner = Finetuner(models.vit_b_16(num_classes=100), args)
    for epoch in range(10):
        tuner.fit_epoch(loader, epoch)
        tuner.save(args.data / "last.pt")


if __name__ == "__main__":
    main()
