"""Summaries with an encoder-decoder, greedy search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List

import torch
from torch import Tensor, nn


@dataclass
class GenerationConfig:
    bos_id: int = 1
    eos_id: int = 2
    pad_id: int = 0
    max_length: int = 256


class Summariser(nn.Module):
    def __init__(self, vocab: int, width: int = 512, layers: int = 6) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width, padding_idx=0)
        self.body = nn.Transformer(width, 8, layers, layers, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def encode(self, src: Tensor) -> Tensor:
        return self.body.encoder(self.embed(src))

    def step(self, tokens: Tensor, memory: Tensor) -> Tensor:
        hidden = self.body.decoder(self.embed(tokens), memory)
        return self.head(hidden[:, -1])


@torch.no_grad()
def greedy(model: Summariser, src: Tensor, cfg: GenerationConfig) -> List[List[int]]:
    model.eval()
    memory = model.encode(src)
    batch = src.size(0)
    buffer = torch.full((batch, cfg.max_length), cfg.pad_id, dtype=torch.long, device=src.device)
    buffer[:, 0] = cfg.bos_id
    done = torch.zeros(batch, dtype=torch.bool, device=src.device)
    for t in range(1, cfg.max_length):
        scores = model.step(buffer[:, :t], memory)
        nxt = scores.argmax(dim=-1)
        nxt = torch.where(done, torch.full_like(nxt, cfg.pad_id), nxt)
        buffer[:, t] = nxt
        done = done | (nxt == cfg.eos_id)
    # one transfer for the whole batch
    return [row[: row.index(cfg.eos_id)] if cfg.eos_id in row else row for row in buffer.tolist()]


def main(checkpoint: str, articles: list[list[int]]) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Summariser(32000)
    model.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=True))
    model.to(device)
    cfg = GenerationConfig()
    for start in range(0, len(articles), 16):
        chunk = articles[start : start + 16]
        src = torch.nn.utils.rnn.pad_sequence([torch.tensor(a) for a in chunk], batch_first=True)
        for ids in greedy(model, src.to(device), cfg):
            print(" ".join(map(str, ids)))


if __name__ == "__main__":
    import json
    import sys

    main(sys.argv[1], json.load(open(sys.argv[2])))
