"""Knowledge distillation of a small student."""

from contextlib import nullcontext

import torch
import torch.nn as nn
import torch.nn.functional as F


class Distiller:
    def __init__(self, teacher, student, T=4.0, alpha=0.7, mixed=True, device="cuda"):
        self.teacher = teacher.to(device).eval().requires_grad_(False)
        self.student = student.to(device)
        self.T, self.alpha = T, alpha
        self.device = device
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=0.05, momentum=0.9, nesterov=True)
        self.scaler = torch.amp.GradScaler(device) if mixed else None
        self.ctx = lambda: torch.autocast(device, torch.float16) if mixed else nullcontext()

    def kd_loss(self, s, t, y):
        soft = F.kl_div(F.log_softmax(s / self.T, dim=1), F.softmax(t / self.T, dim=1), reduction="batchmean")
        return self.alpha * self.T**2 * soft + (1 - self.alpha) * F.cross_entropy(s, y)

    def train_batch(self, x, y):
        x, y = x.to(self.device), y.to(self.device)
        self.optimizer.zero_grad()
        with self.ctx():
            with torch.no_grad():
                t = self.teacher(x)
            loss = self.kd_loss(self.student(x), t, y)
        if self.scaler is not None:
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.student.parameters(), 2.0)
            self.scaler.step(self.optimizer)
        else:
            loss.backward()
            nn.utils.clip_grad_norm_(self.student.parameters(), 2.0)
            self.optimizer.step()
        return loss.detach()

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            self.student.train()
            seen, total = 0, torch.zeros((), device=self.device)
            for x, y in loader:
                total += self.train_batch(x, y) * len(x)
                seen += len(x)
            print(f"[{epoch:03d}] kd loss {total.item() / seen:.4f}")
