"""Mean teacher: the teacher follows the student by an exponential average."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class MeanTeacher:
    def __init__(self, student: nn.Module, decay: float = 0.999):
        self.teacher = copy.deepcopy(student).eval()
        self.teacher.requires_grad_(False)
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in student.state_dict().items() if v.is_floating_point()}

    def update(self, student: nn.Module) -> None:
        with torch.no_grad():
            for name, value in student.state_dict().items():
                if name not in self.shadow:
                    continue
                old = self.shadow[name] * self.decay
                new = old + value * (1 - self.decay)
                self.shadow[name] = new
        self.teacher.load_state_dict(self.shadow, strict=False)


def consistency(a, b):
    return F.mse_loss(a.softmax(-1), b.softmax(-1))


def train(student, labelled, unlabelled, epochs, device, weight=10.0):
    student.to(device)
    mt = MeanTeacher(student)
    mt.teacher.to(device)
    opt = torch.optim.SGD(student.parameters(), lr=0.03, momentum=0.9)
    for epoch in range(epochs):
        student.train()
        for (x, y), (u_weak, u_strong) in zip(labelled, unlabelled):
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            u_weak, u_strong = u_weak.to(device, non_blocking=True), u_strong.to(device, non_blocking=True)
            loss = F.cross_entropy(student(x), y)
            with torch.no_grad():
                guess = mt.teacher(u_weak)
            loss = loss + weight * consistency(student(u_strong), guess)
            opt.zero_grad()
            loss.backward()
            opt.step()
            mt.update(student)
        torch.save(mt.teacher.state_dict(), f"teacher_{epoch}.pt")
