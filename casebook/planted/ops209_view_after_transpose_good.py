"""Multi-head attention pooling over the tokens of a document."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class AttentionPooling(nn.Module):
    def __init__(self, dim, heads=4, queries=8):
        super().__init__()
        self.heads, self.queries = heads, queries
        self.seed = nn.Parameter(torch.randn(queries, dim) * 0.02)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.o = nn.Linear(dim, dim)

    def forward(self, tokens, padding_mask):
        bsz, length, dim = tokens.shape
        d = dim // self.heads
        k = self.k(tokens).view(bsz, length, self.heads, d).transpose(1, 2)
        v = self.v(tokens).view(bsz, length, self.heads, d).transpose(1, 2)
        q = self.seed.view(self.queries, self.heads, d).transpose(0, 1)
        attn = torch.einsum("hqd,bhld->bhql", q, k) * d**-0.5
        attn = attn.masked_fill(padding_mask[:, None, None, :], float("-inf")).softmax(-1)
        pooled = torch.matmul(attn, v)
        pooled = pooled.transpose(1, 2).contiguous()
        pooled = pooled.view(bsz, self.queries, dim)
        return self.o(pooled)


class DocumentClassifier(nn.Module):
    def __init__(self, vocab, dim=256, classes=20):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        layer = nn.TransformerEncoderLayer(dim, 4, dim * 4, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4)
        self.pool = AttentionPooling(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, ids):
        padding = ids == 0
        hidden = self.encoder(self.embed(ids), src_key_padding_mask=padding)
        return self.head(self.pool(hidden, padding).mean(1))


def loss_fn(model, ids, labels):
    return F.cross_entropy(model(ids), labels)
