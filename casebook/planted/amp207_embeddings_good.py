"""Export embeddings of a document collection; this box has no GPU."""

import argparse
import json
from pathlib import Path

import torch
from torch import nn


class MeanPooler(nn.Module):
    def __init__(self, vocab: int = 30_000, dim: int = 384) -> None:
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 6, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 4)

    def forward(self, ids: torch.Tensor, pad: torch.Tensor) -> torch.Tensor:
        h = self.enc(self.emb(ids), src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(-1)
        return (h * keep).sum(1) / keep.sum(1).clamp(min=1)


@torch.no_grad()
def encode(model: nn.Module, batches) -> torch.Tensor:
    device = torch.device("cpu")
    model = model.to(device).eval()
    rows = []
    for ids in batches:
        ids = ids.to(device)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rows.append(model(ids, ids.eq(0)).float())
    return torch.cat(rows)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("tokens", type=Path)
    ap.add_argument("out", type=Path)
    ns = ap.parse_args()
    docs = json.loads(ns.tokens.read_text())
    width = max(map(len, docs))
    ids = torch.tensor([d + [0] * (width - len(d)) for d in docs])
    torch.save(encode(MeanPooler(), ids.split(32)), ns.out)


if __name__ == "__main__":
    main()
