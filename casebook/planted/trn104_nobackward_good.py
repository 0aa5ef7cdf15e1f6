"""Knowledge distillation: a small student follows a large teacher."""

import torch
import torch.nn.functional as F
from torch import nn


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Distiller:
    def __init__(self, teacher, student, temperature=4.0, alpha=0.7):
        self.teacher = teacher.eval()
        for p in self.teacher.parameters():
            p.requires_grad = False
        self.student = student
        self.T, self.alpha = temperature, alpha
        self.optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 10)

    def loss(self, x, y):
        with torch.no_grad():
            soft = F.softmax(self.teacher(x) / self.T, dim=1)
        logits = self.student(x)
        kd = F.kl_div(F.log_softmax(logits / self.T, dim=1), soft, reduction="batchmean") * self.T**2
        return self.alpha * kd + (1 - self.alpha) * F.cross_entropy(logits, y)

    def train(self, loader, epochs):
        for epoch in range(epochs):
            self.student.train()
            running = 0.0
            for x, y in loader:
                self.optimizer.zero_grad()
                loss = self.loss(x, y)
                loss.backward()
                self.optimizer.step()
                running += loss.item()
            self.scheduler.step()
            print(f"epoch {epoch} loss {running / len(loader):.4f}")


if __name__ == "__main__":
    batches = [(torch.randn(64, 100), torch.randint(0, 10, (64,))) for _ in range(30)]
    Distiller(mlp(100, 512, 512, 10), mlp(100, 64, 10)).train(batches, 5)
