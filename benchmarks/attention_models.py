"""Transformers in plain torch whose attention is `scaled_dot_product_attention`, one for each of CUDA's kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Sizes:
    """A model, and what it is given. `words` is 0 for images, which come as `length` patches of `patch` numbers.

    `shared`: heads of keys and values, where several heads of queries share one. `bias`: positions are told by a bias
    that is learned. `padded`: the program hides what fills short sequences by a mask. `written`: attention is
    written out, with the matrix of weights.
    """

    width: int
    heads: int
    depth: int
    batch: int
    length: int
    words: int = 50_257
    patch: int = 0
    shared: int = 0
    inner: int = 0
    dropout: float = 0.1
    causal: bool = True
    bias: bool = False
    padded: bool = False
    written: bool = False
    gated: bool = False
    dtype: torch.dtype = torch.float32
    autocast: torch.dtype | None = None

    @property
    def head(self) -> int:
        """Numbers of a head."""
        return self.width // self.heads


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Queries or keys, turned by their position."""
    half = x.shape[-1] // 2
    first = x[..., :half]
    second = x[..., half:]
    turned = torch.cat((-second, first), -1)
    return x * cos + turned * sin


class Attention(nn.Module):
    """All heads by one call."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes, plain = sizes, not sizes.gated
        self.groups = sizes.shared or sizes.heads
        self.project = nn.Linear(sizes.width, (sizes.heads + 2 * self.groups) * sizes.head, bias=plain)
        self.out = nn.Linear(sizes.width, sizes.width, bias=plain)
        self.drop = nn.Dropout(sizes.dropout)
        if sizes.gated:
            angles = torch.zeros(sizes.length, sizes.head, dtype=sizes.dtype)
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """(batch, length, width) to the same."""
        s = self.sizes
        widths = [s.heads * s.head, self.groups * s.head, self.groups * s.head]
        q, k, v = self.project(x).split(widths, dim=2)
        q = q.view(s.batch, s.length, s.heads, s.head).transpose(1, 2)
        k = k.view(s.batch, s.length, self.groups, s.head).transpose(1, 2)
        v = v.view(s.batch, s.length, self.groups, s.head).transpose(1, 2)
        if s.gated:
            q = rotated(q, self.cos, self.sin)
            k = rotated(k, self.cos, self.sin)
        if s.written:
            y = self.by_hand(q, k, v, mask)
        else:
            y = F.scaled_dot_product_attention(q, k, v, mask, s.dropout, s.causal, enable_gqa=s.shared > 0)
        y = y.transpose(1, 2).contiguous().view(s.batch, s.length, s.width)
        y = self.out(y)
        return self.drop(y) if s.dropout else y

    def by_hand(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, hidden: torch.Tensor | None) -> torch.Tensor:
        """With the matrix of weights."""
        assert hidden is not None
        weights = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        weights = weights.masked_fill(hidden, float("-inf"))
        weights = F.softmax(weights, dim=-1)
        weights = self.drop(weights)
        return weights @ v


class Block(nn.Module):
    """Attention and a layer behind it, each with a norm before it."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, inner = sizes.width, sizes.inner or 4 * sizes.width
        norm = nn.RMSNorm if sizes.gated else nn.LayerNorm
        self.gated, self.dropout = sizes.gated, sizes.dropout
        self.before, self.between = norm(width), norm(width)
        self.attention = Attention(sizes)
        self.first = nn.Linear(width, inner, bias=not sizes.gated)
        self.second = nn.Linear(inner, width, bias=not sizes.gated)
        if sizes.gated:
            self.gate = nn.Linear(width, inner, bias=False)
        self.drop = nn.Dropout(sizes.dropout)

    def fed(self, x: torch.Tensor) -> torch.Tensor:
        """The layer."""
        if self.gated:
            return self.second(F.silu(self.gate(x)) * self.first(x))
        x = self.first(x)
        x = F.gelu(x)
        x = self.second(x)
        return self.drop(x) if self.dropout else x

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """(batch, length, width) to the same."""
        x = x + self.attention(self.before(x), mask)
        x = x + self.fed(self.between(x))
        return x


class Transformer(nn.Module):
    """Words or patches to a loss."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        if sizes.words:
            self.words = nn.Embedding(sizes.words, sizes.width)
        else:
            self.patches = nn.Linear(sizes.patch, sizes.width)
        if sizes.bias:
            self.distances = nn.Embedding(32, sizes.heads)
        elif not sizes.gated:
            self.places = nn.Embedding(sizes.length, sizes.width)
        self.drop = nn.Dropout(sizes.dropout)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.depth))
        self.norm = (nn.RMSNorm if sizes.gated else nn.LayerNorm)(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.words or 1000, bias=False)

    def embedded(self, given: torch.Tensor) -> torch.Tensor:
        """Words or patches, with their places."""
        x = self.words(given) if self.sizes.words else self.patches(given)
        if not self.sizes.bias and not self.sizes.gated:
            x = x + self.places(torch.arange(self.sizes.length, device=given.device))
        return self.drop(x) if self.sizes.dropout else x

    def mask_of(self, lengths: torch.Tensor | None, device: torch.device) -> torch.Tensor | None:
        """What attention is told beside queries, keys and values."""
        places = torch.arange(self.sizes.length, device=device)
        if lengths is not None:
            return (places < lengths[:, None])[:, None, None, :]
        if self.sizes.written:
            return torch.ones(self.sizes.length, self.sizes.length, dtype=torch.bool, device=device).triu(1)
        if self.sizes.bias:
            apart = (places[None, :] - places[:, None]).abs().clamp(max=31)
            return self.distances(apart).permute(2, 0, 1).unsqueeze(0)
        return None

    def forward(self, given: torch.Tensor, wanted: torch.Tensor, lengths: torch.Tensor | None) -> torch.Tensor:
        """The loss: of each word, or of each image by its first patch."""
        mask = self.mask_of(lengths, given.device)
        x = self.embedded(given)
        for block in self.blocks:
            x = block(x, mask)
        x = self.norm(x)
        if not self.sizes.words:
            x = x[:, 0]
        logits = self.head(x)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), wanted)


def step(sizes: Sizes) -> int:
    """The first step's forward and backward passes, counted from their beginning; bytes of tensors between the two."""
    model = Transformer(sizes).to("cuda", sizes.dtype)
    if sizes.words:
        given = torch.randint(0, sizes.words, (sizes.batch, sizes.length)).cuda()
        wanted = torch.randint(0, sizes.words, (sizes.batch * sizes.length,)).cuda()
    else:
        given = torch.zeros(sizes.batch, sizes.length, sizes.patch, dtype=sizes.dtype).cuda()
        wanted = torch.randint(0, 1000, (sizes.batch,)).cuda()
    lengths = torch.full((sizes.batch,), math.ceil(sizes.length / 2)).cuda() if sizes.padded else None
    torch.cuda.reset_peak_memory_stats()
    with torch.autocast("cuda", sizes.autocast or torch.bfloat16, enabled=sizes.autocast is not None):
        loss = model(given, wanted, lengths)
    between = torch.cuda.memory_stats()["requested_bytes.all.current"]
    loss.backward()
    return int(between)


def call(sizes: Sizes) -> int:
    """One call of attention and its backward pass, nothing beside; bytes of tensors between the two."""
    dtype, groups = sizes.autocast or sizes.dtype, sizes.shared or sizes.heads
    shapes = [(sizes.batch, sizes.length, heads, sizes.head) for heads in (sizes.heads, groups, groups)]
    given = [torch.zeros(shape, dtype=dtype, device="cuda", requires_grad=True) for shape in shapes]
    by_out = torch.zeros(sizes.batch, sizes.length, sizes.width, dtype=dtype, device="cuda")
    mask = None
    if sizes.written:
        raise ValueError("written out it is no call")
    if sizes.padded:
        mask = torch.ones(sizes.batch, 1, 1, sizes.length, dtype=torch.bool, device="cuda")
    if sizes.bias:
        shape = (1, sizes.heads, sizes.length, sizes.length)
        mask = torch.zeros(shape, dtype=dtype, device="cuda", requires_grad=True)
    torch.cuda.reset_peak_memory_stats()
    q, k, v = (t.transpose(1, 2) for t in given)
    y = F.scaled_dot_product_attention(q, k, v, mask, sizes.dropout, sizes.causal, enable_gqa=sizes.shared > 0)
    y = y.transpose(1, 2).contiguous().view(sizes.batch, sizes.length, sizes.width)
    between = torch.cuda.memory_stats()["requested_bytes.all.current"]
    y.backward(by_out)
    return int(between)


_HALF = torch.bfloat16
_SMALL = {"width": 768, "heads": 12, "depth": 12, "batch": 8, "length": 1024}
_LLAMA = {
    "width": 2048, "heads": 32, "shared": 8, "depth": 16, "inner": 8192, "batch": 2, "length": 2048, "words": 32_000,
    "dropout": 0.0, "gated": True, "dtype": _HALF,
}  # fmt: skip
_IMAGES = {
    "depth": 8, "batch": 64, "length": 257, "words": 0, "patch": 588, "causal": False, "dtype": _HALF,
}  # fmt: skip
MODELS: dict[str, tuple[str, Sizes]] = {
    "gpt2-small, bf16 autocast": ("a100", Sizes(**_SMALL, autocast=_HALF)),
    "gpt2-small on Hopper": ("h100", Sizes(**_SMALL, autocast=_HALF)),
    "gpt2-small, no dropout": ("h100", Sizes(**_SMALL, autocast=_HALF, dropout=0.0)),
    "gpt2-small, float32": ("a100", Sizes(**_SMALL)),
    "gpt2-small, fp16 on Turing": ("t4", Sizes(**{**_SMALL, "batch": 2}, autocast=torch.float16)),
    "gpt2-xl, bf16": ("a100", Sizes(1600, 25, 48, 4, 1024, dtype=_HALF)),
    "gpt2-small, written out": ("a100", Sizes(**_SMALL, words=2000, dtype=_HALF, written=True)),
    "bert-base, padding mask": (
        "a100", Sizes(768, 12, 12, 32, 500, 30_522, causal=False, padded=True, autocast=torch.float16)
    ),
    "vit-huge, heads of 80": ("a100", Sizes(1280, 16, **_IMAGES)),
    "vit, heads of 72": ("a100", Sizes(1152, 16, **_IMAGES)),
    "vit, heads of 44": ("a100", Sizes(528, 12, **_IMAGES)),
    "t5-small encoder, bias": (
        "a100", Sizes(512, 8, 6, 16, 500, 2000, inner=2048, causal=False, bias=True, autocast=_HALF)
    ),
    "llama 1b, 8 of 32 heads": ("a100", Sizes(**_LLAMA)),
    "llama 1b on Hopper": ("h100", Sizes(**_LLAMA)),
}  # fmt: skip
