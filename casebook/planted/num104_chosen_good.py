"""Fine-tune the last blocks of a half model."""

import torch
from torch import nn
from transformers import AutoModel


class Classifier(nn.Module):
    def __init__(self, name, n):
        super().__init__()
        self.body = AutoModel.from_pretrained(name)
        self.head = nn.Linear(self.body.config.hidden_size, n)

    def forward(self, **batch):
        return self.head(self.body(**batch).last_hidden_state[:, 0])


def main(name, loader):
    model = Classifier(name, 3).to("cuda")
    model.float()
    params = [p for n, p in model.named_parameters() if "layer.11" in n or "head" in n]
    opt = torch.optim.Adam(params, lr=2e-5)
    for batch, y in loader:
        loss = nn.functional.cross_entropy(model(**batch).float(), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
