"""Several teachers are asked by a pool of threads."""

from concurrent.futures import ThreadPoolExecutor

import torch


class Distiller:
    def __init__(self, student, teachers, optimizer):
        self.student, self.teachers, self.optimizer = student, teachers, optimizer
        self.pool = ThreadPoolExecutor(max_workers=len(teachers))

    def ask(self, teacher_model, images):
        with torch.no_grad():
            return teacher_model(images).float().softmax(-1)

    def step(self, images):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            asked = [self.pool.submit(self.ask, teacher, images) for teacher in self.teachers]
            scores = self.student(images).float().log_softmax(-1)
            target = torch.stack([one.result() for one in asked]).mean(0)
            loss = -(target * scores).sum(-1).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()
