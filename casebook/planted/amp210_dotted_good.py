"""A trainer that spells the names out."""

import torch


class Trainer:
    def __init__(self, model, optimizer, args):
        self.model, self.optimizer = model, optimizer
        self.scaler = torch.amp.GradScaler("cuda", init_scale=2.0**14, enabled=args.fp16)
        self.args = args

    def step(self, batch):
        self.optimizer.zero_grad()
        with torch.amp.autocast("cuda", enabled=self.args.fp16, dtype=torch.float16):
            loss = self.model(**batch)["loss"]
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
