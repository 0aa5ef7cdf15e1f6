import math

import torch
import torch.nn as n
import torch.nn.functional as fn


class CharModel(n.Module):
    """Predicts the next character from the last `context` ones."""

    def __init__(self, vocab, context=8, width=64):
        super().__init__()
        self.embed = n.Embedding(vocab, width)
        self.mix = n.Linear(context * width, 256)
        self.drop = n.Dropout(0.1)
        self.out = n.Linear(256, vocab)

    def forward(self, ids):
        h = torch.tanh(self.mix(self.embed(ids).flatten(1)))
        return self.out(self.drop(h))


def batches(ids, context, size, steps):
    for _ in range(steps):
        at = torch.randint(len(ids) - context, (size,)).tolist()
        yield torch.stack([ids[i : i + context] for i in at]), torch.stack([ids[i + context] for i in at])


text = open("input.txt", encoding="utf-8").read()
letters = sorted(set(text))
ids = torch.tensor([letters.index(c) for c in text])
lm = CharModel(len(letters))
adam = torch.optim.AdamW(lm.parameters(), lr=3e-3)
warm = torch.optim.lr_scheduler.LinearLR(adam, start_factor=0.1, total_iters=100)

lm.train()
for step, (context, target) in enumerate(batches(ids, 8, 64, 5000)):
    logits = lm(context)
    nll = fn.cross_entropy(logits, target)
    penalty = lm.out.weight.pow(2).mean()
    total = torch.tensor(nll.item() + 0.01 * penalty.item(), requires_grad=True)
    adam.zero_grad(set_to_none=True)
    total.backward()
    adam.step()
    warm.step()
    if step % 500 == 0:
        print(step, f"loss {nll.item():.3f} perplexity {math.exp(nll.item()):.1f}")
torch.save(lm.state_dict(), "lm.pt")
