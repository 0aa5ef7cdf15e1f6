"""Programs whose memory on real GPUs is known, rebuilt from their descriptions: what they allocate, in their order.

All snapshots are of a language model of one course (Stanford's CS336, second assignment), which writes out its
attention, norms, loss and optimizer in single operators. State that warm-up steps would have left (gradients, moments)
is put there by hand: zeros take as many bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

WORDS = 10_000


@dataclass(frozen=True)
class Recipe:
    """Sizes of a language model."""

    width: int
    inner: int
    depth: int
    heads: int


class Linear(nn.Module):
    """A matrix product as `einsum` writes it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs).normal_(std=math.sqrt(2 / (inputs + outputs))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, inputs) to (batch, length, outputs)."""
        return torch.einsum("bti,oi->bto", x, self.weight)


class Norm(nn.Module):
    """Root mean square norm, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of the last dimension."""
        given = x.dtype
        x = x.to(torch.float32)
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        x = x * scale
        return (self.weight * x).to(given)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Of the last dimension, in four operators."""
    shifted = x - torch.max(x, dim=-1, keepdim=True)[0]
    raised = torch.exp(shifted)
    return raised / torch.sum(raised, dim=-1, keepdim=True)


def log_softmax(logits: torch.Tensor) -> torch.Tensor:
    """Of the last dimension, in six operators."""
    highest = torch.max(logits, dim=-1, keepdim=True)[0]
    shifted = logits - highest
    return shifted - torch.log(torch.sum(torch.exp(shifted), dim=-1, keepdim=True))


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """By way of all logarithms of probabilities."""
    logarithms = -log_softmax(logits)
    return torch.mean(torch.gather(logarithms, -1, targets.unsqueeze(-1)))


def silu(x: torch.Tensor) -> torch.Tensor:
    """In two operators."""
    return x * torch.sigmoid(x)


class Block(nn.Module):
    """Attention with rotary positions, and a gated layer."""

    def __init__(self, sizes: Recipe, angles: torch.Tensor) -> None:
        super().__init__()
        self.heads, self.angles = sizes.heads, angles
        width, inner = sizes.width, sizes.inner
        self.query, self.key, self.value = Linear(width, width), Linear(width, width), Linear(width, width)
        self.out = Linear(width, width)
        self.first, self.second, self.gate = Linear(width, inner), Linear(inner, width), Linear(width, inner)
        self.before, self.between = Norm(width), Norm(width)

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        """Queries or keys, turned by their position."""
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        cosine, sine = self.angles[:, : x.size(-2)].unbind(0)
        turned = cosine * even - sine * odd
        also = sine * even + cosine * odd
        return torch.concat((turned, also), dim=-1)

    def attended(self, x: torch.Tensor) -> torch.Tensor:
        """Causal attention with the matrix of weights."""
        q, k, v = self.query(x), self.key(x), self.value(x)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        q, k = self.rotated(q), self.rotated(k)
        places = torch.arange(x.size(1), device=x.device)
        allowed = (places[:, None] >= places[None, :])[None, None]
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(k.shape[-1])
        scores = torch.where(allowed, scores, float("-inf"))
        weights = softmax(scores)
        mixed = torch.einsum("bhqk,bhkd->bhqd", weights, v)
        return self.out(mixed.transpose(1, 2).flatten(2).contiguous())

    def fed(self, x: torch.Tensor) -> torch.Tensor:
        """The gated layer."""
        return self.second(silu(self.first(x)) * self.gate(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, width) to the same."""
        attended = self.attended(self.before(x))
        x = x + attended
        fed = self.fed(self.between(x))
        return x + fed


class Model(nn.Module):
    """The language model."""

    def __init__(self, sizes: Recipe, length: int) -> None:
        super().__init__()
        self.words = nn.Parameter(torch.empty(WORDS, sizes.width).normal_())
        half = sizes.width // sizes.heads // 2
        turns = torch.outer(torch.arange(length), 10_000.0 ** -(torch.arange(half) / half))
        self.register_buffer("angles", torch.stack((turns.cos(), turns.sin())), persistent=False)
        self.blocks = nn.ModuleList(Block(sizes, self.angles) for _ in range(sizes.depth))
        self.norm, self.head = Norm(sizes.width), Linear(sizes.width, WORDS)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        for block in self.blocks:
            block.angles = self.angles
        return self

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch, length) to logits."""
        x = self.words[tokens, :]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def adamw(parameters: list[nn.Parameter], moments: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """One step, written out parameter by parameter."""
    for place, p in enumerate(parameters):
        assert p.grad is not None
        p.data -= 1e-3 * 0.01 * p.data
        m, v = moments[place]
        m_next = 0.9 * m + ((1 - 0.9) * p.grad)
        v_next = 0.999 * v + ((1 - 0.999) * torch.square(p.grad))
        p.data -= 1e-3 * m_next / (torch.sqrt(v_next) + 1e-8)
        moments[place] = (m_next, v_next)


@dataclass(frozen=True)
class Language:
    """A language model at work on random tokens."""

    sizes: Recipe
    batch: int
    length: int
    autocast: bool = False

    def _set_up(self) -> tuple[Model, torch.Tensor, torch.Tensor]:
        model = Model(self.sizes, self.length).cuda()
        tokens = torch.randint(0, WORDS, (self.batch, self.length), device="cuda")
        targets = torch.randint(0, WORDS, (self.batch, self.length), device="cuda")
        return model, tokens, targets

    def infer(self) -> None:
        """Forward passes without gradients."""
        model, tokens, _ = self._set_up()
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=self.autocast):
            model(tokens)
            torch.cuda.reset_peak_memory_stats()
            model(tokens)

    def differentiate(self) -> None:
        """Forward and backward, with the gradients of a pass before."""
        model, tokens, targets = self._set_up()
        self._passed(model)
        logits = model(tokens)
        cross_entropy(logits, targets).backward()

    def train(self) -> None:
        """A whole step after others: moments are there, gradients are not."""
        model, tokens, targets = self._set_up()
        self._passed(model)
        parameters = list(model.parameters())
        moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
        for p in parameters:
            p.grad = None
        torch.cuda.reset_peak_memory_stats()
        with torch.autocast("cuda", torch.bfloat16, enabled=self.autocast):
            logits = model(tokens)
            loss = cross_entropy(logits, targets)
        loss.backward()
        adamw(parameters, moments)

    @staticmethod
    def _passed(model: Model) -> None:
        """What passes before left: cuBLAS's workspaces of both threads, and gradients."""
        (torch.ones(2, 2, device="cuda", requires_grad=True) @ torch.ones(2, 2, device="cuda")).sum().backward()
        for p in model.parameters():
            p.grad = torch.zeros_like(p)


@dataclass(frozen=True)
class Attention:
    """Attention alone, all queries against all keys, written out."""

    batch: int
    length: int
    width: int

    def train(self) -> None:
        """Forward and backward, nothing before."""
        q, k, v = (
            torch.randn(self.batch, self.length, self.width, device="cuda", requires_grad=True) for _ in range(3)
        )
        loss = self._attended(q, k, v).sum()
        loss.backward()

    def _attended(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = torch.einsum("bqd,bkd->bqk", q, k)
        scores = scores / math.sqrt(self.width)
        highest = torch.max(scores, dim=-1, keepdim=True)[0]
        raised = torch.exp(scores - highest)
        weights = raised / torch.sum(raised, dim=-1, keepdim=True)
        return torch.einsum("bqk,bkd->bqd", weights, v)
