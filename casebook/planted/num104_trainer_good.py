"""Fine-tuning with all weights in float32."""

import torch
from torch import nn
from transformers import AutoModelForCausalLM


class Finetuner:
    def __init__(self, name, lr):
        self.model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.float32).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=0.01)

    def step(self, batch):
        self.optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self.model(**batch).loss
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()
