"""Half-precision CLIP fine-tuning in the manner of many forks."""

import torch
from torch import nn


class Clip(nn.Module):
    def __init__(self, dim=512):
        super().__init__()
        self.image = nn.Linear(2048, dim)
        self.text = nn.Linear(768, dim)
        self.logit_scale = nn.Parameter(torch.ones([]) * 2.66)

    def forward(self, image, text):
        i = nn.functional.normalize(self.image(image).float(), dim=-1)
        t = nn.functional.normalize(self.text(text).float(), dim=-1)
        return self.logit_scale.float().exp() * i @ t.t()


def load(path, device):
    model = Clip()
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return model.to(device)


def main(path, loader, device="cuda"):
    model = load(path, device)
    opt = torch.optim.SGD(model.parameters(), lr=1e-5)
    scaler = torch.amp.GradScaler(device)
    for image, text in loader:
        with torch.autocast(device):
            logits = model(image.to(device), text.to(device))
        target = torch.arange(len(logits), device=device)
        loss = nn.functional.cross_entropy(logits.float(), target)
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
