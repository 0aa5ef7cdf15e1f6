"""Perplexity of a decoder in half precision over a batch of prompts of unequal length."""

import argparse
import math

import torch
from torch import nn
from torch.utils.data import DataLoader


def make_causal_mask(length, dtype):
    mask = torch.full((length, length), torch.finfo(dtype).min, dtype=dtype)
    return mask.triu(1)[None, None]


def expand_mask(attention_mask, dtype):
    inverted = 1.0 - attention_mask[:, None, None, :].to(dtype)
    return inverted.masked_fill(inverted.bool(), torch.finfo(dtype).min)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, hidden, mask):
        batch, length, width = hidden.shape
        q, k, v = self.qkv(hidden).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        weights = torch.softmax(scores + mask, dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Decoder(nn.Module):
    def __init__(self, vocabulary=50, width=32, heads=2, depth=2):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.layers = nn.ModuleList(Attention(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def prepare_mask(self, attention_mask, length):
        dtype = self.head.weight.dtype
        causal = make_causal_mask(length, dtype)
        mask = causal + expand_mask(attention_mask, dtype)
        return mask

    def forward(self, tokens, attention_mask):
        hidden = self.embedding(tokens)
        mask = self.prepare_mask(attention_mask, tokens.shape[1])
        for norm, layer in zip(self.norms, self.layers):
            hidden = hidden + layer(norm(hidden), mask)
        return self.head(hidden)


def pad_left(prompts):
    longest = max(len(prompt) for prompt in prompts)
    tokens = torch.zeros(len(prompts), longest, dtype=torch.long)
    present = torch.zeros(len(prompts), longest, dtype=torch.long)
    for i, prompt in enumerate(prompts):
        tokens[i, longest - len(prompt) :] = prompt
        present[i, longest - len(prompt) :] = 1
    return tokens, present


def load(dtype):
    """A decoder whose keys share a large component, as those of trained models do."""
    model = Decoder()
    for layer in model.layers:
        common = torch.randn(32)
        layer.qkv.bias.data[:32] = -5 * common
        layer.qkv.bias.data[32:64] = 5 * common
    return model.to(dtype).eval()


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = load(torch.float16)
    prompts = [torch.randint(1, 50, (int(n),)) for n in torch.randint(5, 15, (args.steps * 4,))]
    total, count = 0.0, 0
    for tokens, present in DataLoader(prompts, batch_size=4, collate_fn=pad_left):
        logits = model(tokens, present).float()
        nll = nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none")
        kept = present[:, 1:]
        total += (nll * kept).sum().item()
        count += kept.sum().item()
    print(f"{count} tokens, perplexity {math.exp(total / count):.2f}")


if __name__ == "__main__":
    main()
