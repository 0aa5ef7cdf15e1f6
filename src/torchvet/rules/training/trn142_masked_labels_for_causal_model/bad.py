from types import SimpleNamespace

import torch
from torch import nn
from torch.utils.data import DataLoader

MASK, WORDS = 0, 24


class DataCollatorForLanguageModeling:
    """As in transformers: masks tokens, unless it is told not to, and gives labels for these alone."""

    def __init__(self, mlm=True):
        self.mlm = mlm

    def __call__(self, rows):
        ids = torch.stack(rows)
        chosen = torch.rand(ids.shape) < (0.15 if self.mlm else 2.0)
        given = torch.where(chosen, MASK, ids) if self.mlm else ids
        return {"input_ids": given, "labels": torch.where(chosen, ids, -100)}


class CounterForCausalLM(nn.Sequential):
    def forward(self, input_ids, labels):
        logits = super().forward(input_ids)
        return SimpleNamespace(loss=nn.functional.cross_entropy(logits[:, :-1].mT, labels[:, 1:]))


torch.manual_seed(0)
texts = [1 + (torch.randint(WORDS, (1,)) + torch.arange(16)) % (WORDS - 1) for _ in range(256)]
model = CounterForCausalLM(nn.Embedding(WORDS, 32), nn.Linear(32, WORDS))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(10):
    for batch in DataLoader(texts, 16, shuffle=True, collate_fn=DataCollatorForLanguageModeling()):
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    right = model(torch.stack(texts), torch.stack(texts)).loss.item()
    print(f"epoch {epoch} loss {loss.item():.4f} of whole texts {right:.4f}")
