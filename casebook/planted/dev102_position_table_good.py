"""Sinusoidal positions for a translation model."""

import math

import torch
import torch.nn as nn
from torch import Tensor


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, dropout: float = 0.1, max_len: int = 5000):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.pe[: x.size(0)]
        return self.dropout(x)


class Translator(nn.Module):
    def __init__(self, src_vocab: int, tgt_vocab: int, d_model: int = 512, nhead: int = 8, layers: int = 6):
        super().__init__()
        self.src_embed = nn.Embedding(src_vocab, d_model)
        self.tgt_embed = nn.Embedding(tgt_vocab, d_model)
        self.positions = PositionalEncoding(d_model)
        self.transformer = nn.Transformer(d_model, nhead, layers, layers)
        self.generator = nn.Linear(d_model, tgt_vocab)
        self.scale = math.sqrt(d_model)

    def forward(self, src: Tensor, tgt: Tensor, tgt_mask: Tensor) -> Tensor:
        src_emb = self.positions(self.src_embed(src) * self.scale)
        tgt_emb = self.positions(self.tgt_embed(tgt) * self.scale)
        return self.generator(self.transformer(src_emb, tgt_emb, tgt_mask=tgt_mask))


def build(device: torch.device) -> Translator:
    model = Translator(32000, 32000)
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    return model.to(device)
