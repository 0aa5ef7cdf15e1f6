"""Metric learning: ArcFace head with an optimizer of its own."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ArcHead(nn.Module):
    def __init__(self, dim: int, classes: int, s: float = 30.0, m: float = 0.4) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, dim))
        nn.init.xavier_uniform_(self.weight)
        self.s, self.m = s, m

    def forward(self, emb: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        cos = F.linear(F.normalize(emb.float()), F.normalize(self.weight.float())).clamp(-0.999, 0.999)
        theta = torch.acos(cos)
        hot = F.one_hot(label, cos.size(1)).bool()
        return self.s * torch.where(hot, torch.cos(theta + self.m), cos)


class Learner:
    def __init__(self, backbone: nn.Module, dim: int, classes: int) -> None:
        self.backbone = backbone.cuda()
        self.head = ArcHead(dim, classes).cuda()
        self.opt_backbone = torch.optim.SGD(self.backbone.parameters(), lr=0.01, momentum=0.9)
        self.opt_head = torch.optim.SGD(self.head.parameters(), lr=0.1, momentum=0.9)
        self.fp16_scaler = torch.amp.GradScaler("cuda", growth_interval=1000)

    def training_step(self, img: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        self.opt_backbone.zero_grad(set_to_none=True)
        self.opt_head.zero_grad(set_to_none=True)
        with torch.autocast(device_type="cuda", dtype=torch.float16):
            emb = self.backbone(img)
        logits = self.head(emb, label)
        loss = F.cross_entropy(logits, label)
        self.fp16_scaler.scale(loss).backward()
        self.fp16_scaler.step(self.opt_backbone)
        self.fp16_scaler.step(self.opt_head)
        self.fp16_scaler.update()
        return loss.detach()


def epoch(learner: Learner, loader) -> float:
    losses = []
    for img, label in loader:
        losses.append(learner.training_step(img.cuda(non_blocking=True), label.cuda(non_blocking=True)))
    return torch.stack(losses).mean().item()
