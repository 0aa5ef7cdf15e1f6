"""Nearest-neighbour search over half-precision embeddings."""

import torch
from torch import Tensor


class Index:
    """A flat index that keeps its vectors in half precision to fit on one card."""

    def __init__(self, dim: int, capacity: int, device: str = "cuda") -> None:
        self.vectors = torch.zeros(capacity, dim, dtype=torch.float16, device=device)
        self.ids: list[int] = []
        self.device = device

    def add(self, ids: list[int], vectors: Tensor) -> None:
        start = len(self.ids)
        half = vectors.to(self.device).half()
        norm = half.norm(dim=1, keepdim=True)
        half = half / (norm + 1e-8)
        self.vectors[start : start + len(ids)] = half
        self.ids.extend(ids)

    @torch.inference_mode()
    def search(self, queries: Tensor, k: int = 10) -> tuple[Tensor, Tensor]:
        q = torch.nn.functional.normalize(queries.to(self.device).float(), dim=1).half()
        scores = q @ self.vectors[: len(self.ids)].T
        return scores.float().topk(k, dim=1)


def build(batches, dim: int) -> Index:
    index = Index(dim, 1_000_000)
    for ids, vecs in batches:
        index.add(ids, vecs)
    return index
