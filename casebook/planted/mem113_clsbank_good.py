"""Extract one embedding per document with a pretrained encoder and build an index."""

import argparse
import json

import torch
from tqdm.auto import tqdm
from transformers import AutoModel, AutoTokenizer


def read_jsonl(path):
    with open(path) as fh:
        for line in fh:
            yield json.loads(line)["text"]


def chunks(seq, n):
    buf = []
    for item in seq:
        buf.append(item)
        if len(buf) == n:
            yield buf
            buf = []
    if buf:
        yield buf


class Embedder:
    def __init__(self, name, device):
        self.tok = AutoTokenizer.from_pretrained(name)
        self.model = AutoModel.from_pretrained(name).to(device).eval()
        self.device = device

    @torch.inference_mode()
    def embed_all(self, texts, bs):
        vectors = []
        for batch in tqdm(chunks(texts, bs)):
            enc = self.tok(batch, padding="max_length", truncation=True, max_length=512, return_tensors="pt").to(
                self.device
            )
            hidden = self.model(**enc).last_hidden_state
            # only the first token is kept: 768 numbers a document
            vectors.append(hidden[:, 0].clone())
        return torch.cat(vectors)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("input")
    ap.add_argument("--model", default="bert-base-uncased")
    ap.add_argument("--batch-size", type=int, default=64)
    a = ap.parse_args()
    emb = Embedder(a.model, "cuda")
    index = emb.embed_all(read_jsonl(a.input), a.batch_size)
    torch.save(index.cpu(), "index.pt")


if __name__ == "__main__":
    main()
