"""A large batch in micro-batches that fit."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy


class Shard:
    def __init__(self, tokens, block, bs):
        self.tokens, self.block, self.bs = tokens, block, bs

    def next_batch(self):
        ix = torch.randint(len(self.tokens) - self.block - 1, (self.bs,))
        x = torch.stack([self.tokens[i : i + self.block] for i in ix])
        y = torch.stack([self.tokens[i + 1 : i + 1 + self.block] for i in ix])
        return x, y


class GPTish(nn.Module):
    def __init__(self, vocab=64, dim=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.tr = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, x, y):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        logits = self.head(self.tr(self.emb(x), mask=mask, is_causal=True))
        return logits, cross_entropy(logits.flatten(0, 1), y.flatten())


def main(max_iters=20, grad_accum=4):
    data = Shard(torch.randint(0, 64, (10_000,)), 32, 8)
    model = GPTish()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95))
    for it in range(max_iters):
        optimizer.zero_grad(set_to_none=True)
        lossf = 0.0
        for micro in range(grad_accum):
            x, y = data.next_batch()
            _, loss = model(x, y)
            lossf += loss.item() / grad_accum
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"iter {it}: {lossf:.4f}")


if __name__ == "__main__":
    main()
