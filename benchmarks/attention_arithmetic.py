"""Bytes that the first training step of a transformer takes on a GPU, by arithmetic: no torch, nothing of torchvet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cuda_arithmetic import (
    Bytes,
    Shape,
    Value,
    View,
    bent,
    cast,
    copied,
    cross_entropy,
    cudnn,
    derived,
    dropout,
    efficient,
    embedding,
    flash,
    go_back,
    ledger,
    linear,
    norm,
    parameter,
    plus,
    selected,
    split,
    times,
    written,
)


@dataclass(frozen=True)
class Plan:
    """A model and its sizes. `kernel` takes the attention ("": it is written out); `item` and `half` are bytes of a
    weight, and of a number under autocast (0: without); the rest is as in `attention_models.Sizes`."""

    kernel: str
    width: int
    heads: int
    depth: int
    batch: int
    length: int
    words: int = 50_257
    patch: int = 0
    shared: int = 0
    inner: int = 0
    dropout: bool = True
    bias: bool = False
    padded: bool = False
    gated: bool = False
    item: int = 4
    half: int = 0
    card: str = "a100"


def bias_of(mask: Value | None, item: int, p: Plan, dense: bool) -> Value | None:
    """What the efficient kernel is told (`preprocess_mask` of `transformers/attention.cpp`): a mask becomes numbers;
    rows that are not dense or no multiple of 8 long are padded; then it is expanded, whose gradient is summed."""
    if mask is None:
        return None
    rows = mask if mask.slot else Value(mask.count, item)
    if dense and p.length % 8 == 0:
        return rows
    padded = copied(rows, mask.count // p.length * (p.length + 8 - p.length % 8))
    return selected(padded, mask.count)


def attended(q: Value, k: Value, v: Value, mask: Value | None, p: Plan, dense: bool = True) -> Value:
    """By the plan's kernel; `dense` are rows of a mask that lie as they are read."""
    shape = Shape(p.batch, p.heads, p.shared or p.heads, p.length, p.width // p.heads, q.item)
    if not p.kernel:
        assert mask
        return written(q, k, v, mask, shape)
    if p.kernel == "efficient":
        return efficient(q, k, v, bias_of(mask, q.item, p, dense), shape, p.card)
    return {"flash": flash, "cudnn": cudnn}[p.kernel](q, k, v, shape)


class Model:
    """The same operators in the same order, with the same names bound as long."""

    def __init__(self, plan: Plan) -> None:
        p = self.plan = plan
        ledger.workspace = 32 << 20 if p.card == "h100" else 8_519_680
        self.casts: dict[Value, Value] = {}
        if p.words:
            self.table = parameter(p.words * p.width, p.item)
        else:
            self.table, self.table_bias = parameter(p.patch * p.width, p.item), parameter(p.width, p.item)
        if p.bias:
            self.distances = parameter(32 * p.heads, p.item)
        elif not p.gated:
            self.places = parameter(p.length * p.width, p.item)
        self.blocks = [self.block_parameters() for _ in range(p.depth)]
        self.norm, self.head = self.norm_parameters(), parameter((p.words or 1000) * p.width, p.item)
        if p.gated:  # cosines and sines: each block has its own
            self.angles = [Value(p.length * p.width // p.heads, p.item) for _ in range(2 * p.depth)]

    def norm_parameters(self) -> list[Value]:
        """Scale, and for a layer norm shift."""
        return [parameter(self.plan.width, self.plan.item) for _ in range(1 if self.plan.gated else 2)]

    def linear_parameters(self, given: int, wide: int) -> list[Value]:
        """Weight, and without gates bias."""
        sizes = [given * wide] if self.plan.gated else [given * wide, wide]
        return [parameter(n, self.plan.item) for n in sizes]

    def block_parameters(self) -> dict[str, list[Value]]:
        """Of one block."""
        p, inner = self.plan, self.plan.inner or 4 * self.plan.width
        found = {"before": self.norm_parameters(), "between": self.norm_parameters()}
        found["project"] = self.linear_parameters(p.width, (p.heads + 2 * (p.shared or p.heads)) * p.width // p.heads)
        found["out"] = self.linear_parameters(p.width, p.width)
        found["first"], found["second"] = self.linear_parameters(p.width, inner), self.linear_parameters(inner, p.width)
        if p.gated:
            found["gate"] = self.linear_parameters(p.width, inner)
        return found

    def light(self, x: Value) -> Value:
        """What a product takes under autocast: weights are cast once."""
        if not self.plan.half or x.item == self.plan.half:
            return x
        if x not in self.leaves:
            return cast(x, self.plan.half)
        if x not in self.casts:
            self.casts[x] = cast(x, self.plan.half)
        return self.casts[x]

    @property
    def leaves(self) -> set[Value]:
        """All weights and biases of products."""
        products = [v for b in self.blocks for n in b for v in b[n]]
        return {self.table, self.head, *products}

    def product(self, x: Value, params: list[Value], wide: int) -> Value:
        """A linear layer."""
        given = [self.light(v) for v in params]
        return linear(self.light(x), given[0], given[1] if len(given) > 1 else None, wide)

    def rotated(self, x: Value, cos: Value, sin: Value) -> Value:
        """See `attention_models.rotated`."""
        first, second = selected(x, x.count // 2), selected(x, x.count // 2)
        turned = self.joined(self.scaled(second), first)
        return plus(self.scaled(x, cos), self.scaled(turned, sin))

    def scaled(self, x: Value, by: Value | None = None) -> Value:
        """A product with what does not learn, or a change of sign."""
        slot, size, saved = x.slot, x.count * x.item, by and by.memory

        def back(g: Bytes) -> Any:
            assert saved or not by
            return [(slot, Bytes(size))]

        return derived([x], x.count, x.item, back)

    def joined(self, one: Value, other: Value) -> Value:
        """`cat`: parts of the gradient are views of it."""
        slots, size = (one.slot, other.slot), one.count * one.item

        def back(g: Bytes) -> Any:
            return [(s, View(g, size)) for s in slots]

        return derived([one, other], 2 * one.count, one.item, back)

    def attention(self, x: Value, block: dict[str, list[Value]], mask: Value | None, angles: list[Value]) -> Value:
        """See `attention_models.Attention`."""
        p, head = self.plan, self.plan.width // self.plan.heads
        groups = p.shared or p.heads
        widths = [p.width, groups * head, groups * head]
        q, k, v = split(self.product(x, block["project"], sum(widths)), widths)
        if p.gated:
            q = self.rotated(q, *angles)
            k = self.rotated(k, *angles)
        y = attended(q, k, v, self.light(mask) if mask and mask.slot else mask, p, dense=not p.bias)
        y = self.product(y, block["out"], p.width)
        return dropout(y) if p.dropout else y

    def fed(self, x: Value, block: dict[str, list[Value]]) -> Value:
        """See `attention_models.Block.fed`."""
        p, inner = self.plan, self.plan.inner or 4 * self.plan.width
        if p.gated:
            return self.product(
                times(bent(self.product(x, block["gate"], inner)), self.product(x, block["first"], inner)),
                block["second"],
                p.width,
            )
        x = self.product(x, block["first"], inner)
        x = bent(x)
        x = self.product(x, block["second"], p.width)
        return dropout(x) if p.dropout else x

    def embedded(self, given: Value) -> Value:
        """See `attention_models.Transformer.embedded`."""
        p = self.plan
        if p.words:
            x = embedding(self.table, given.memory, p.width)
        else:
            x = self.product(given, [self.table, self.table_bias], p.width)
        if not p.bias and not p.gated:
            x = plus(x, self.broadcast(embedding(self.places, Bytes(8 * p.length), p.width), x.count))
        return dropout(x) if p.dropout else x

    @staticmethod
    def broadcast(x: Value, count: int) -> Value:
        """The same for each of the batch: its gradient is summed."""
        return Value(count, x.item, x.memory, x.slot)

    def mask_of(self) -> Value | None:
        """See `attention_models.Transformer.mask_of`."""
        p = self.plan
        if p.padded:
            return Value(p.batch * p.length, 1)
        if not p.kernel:
            return Value(p.length**2, 1)
        if p.bias:
            return embedding(self.distances, Bytes(8 * p.length**2), p.heads)
        return None

    def forward(self, given: Value, wanted: Bytes) -> Value:
        """The loss."""
        p = self.plan
        mask = self.mask_of()
        x = self.embedded(given)
        for number, block in enumerate(self.blocks):
            angles = self.angles[2 * number : 2 * number + 2] if p.gated else []
            x = plus(x, self.attention(norm(x, block["before"]), block, mask, angles))
            x = plus(x, self.fed(norm(x, block["between"]), block))
        x = norm(x, self.norm)
        if not p.words:
            x = selected(x, p.batch * p.width)
        logits = self.product(x, [self.head], p.words or 1000)
        return cross_entropy(logits, wanted, 4 if p.half else p.item)


def peak_of(plan: Plan) -> tuple[int, int]:
    """Bytes held after the forward pass, and the most at once in the whole step."""
    ledger.__init__()  # type: ignore[misc]
    model = Model(plan)
    given = Value(
        *((plan.batch * plan.length, 8) if plan.words else (plan.batch * plan.length * plan.patch, plan.item))
    )
    wanted = Bytes(8 * (plan.batch * plan.length if plan.words else plan.batch))
    lengths = Bytes(8 * plan.batch) if plan.padded else None
    loss = model.forward(given, wanted)
    model.casts.clear()
    held = ledger.now
    go_back(loss, Bytes(loss.item))  # a gradient of one, which `torch.autograd.backward` holds
    assert lengths or not plan.padded
    return held, ledger.peak


def peak_of_call(plan: Plan) -> tuple[int, int]:
    """The same of one call of attention alone."""
    ledger.__init__()  # type: ignore[misc]
    p, item, head = plan, plan.half or plan.item, plan.width // plan.heads
    groups = p.shared or p.heads
    q, k, v = (parameter(p.batch * p.length * n * head, item) for n in (p.heads, groups, groups))
    by_out = Bytes(p.batch * p.length * p.width * item)
    mask = Value(p.batch * p.length, 1) if p.padded else parameter(p.heads * p.length**2, item) if p.bias else None
    y = attended(q, k, v, mask, p)
    held = ledger.now
    go_back(y, by_out)
    return held, ledger.peak


_SMALL: dict[str, Any] = {"width": 768, "heads": 12, "depth": 12, "batch": 8, "length": 1024}
_LLAMA: dict[str, Any] = {
    "width": 2048, "heads": 32, "shared": 8, "depth": 16, "inner": 8192, "batch": 2, "length": 2048, "words": 32_000,
    "dropout": False, "gated": True, "item": 2,
}  # fmt: skip
_IMAGES: dict[str, Any] = {"depth": 8, "batch": 64, "length": 257, "words": 0, "patch": 588, "item": 2}
PLANS = {
    "gpt2-small, bf16 autocast": Plan("flash", **_SMALL, half=2),
    # A dropout of 0.1 is no multiple of 1/16, which is all that cuDNN has (`check_cudnn_dropout` of `sdp_utils.cpp`).
    "gpt2-small on Hopper": Plan("flash", **_SMALL, half=2, card="h100"),
    "gpt2-small, no dropout": Plan("cudnn", **_SMALL, half=2, dropout=False, card="h100"),
    "gpt2-small, float32": Plan("efficient", **_SMALL),
    "gpt2-small, fp16 on Turing": Plan("efficient", **{**_SMALL, "batch": 2}, half=2, card="t4"),
    "gpt2-xl, bf16": Plan("flash", 1600, 25, 48, 4, 1024, item=2),
    "gpt2-small, written out": Plan("", **_SMALL, words=2000, item=2),
    "bert-base, padding mask": Plan("efficient", 768, 12, 12, 32, 500, 30_522, padded=True, half=2),
    "vit-huge, heads of 80": Plan("flash", 1280, 16, **_IMAGES),
    "vit, heads of 72": Plan("flash", 1152, 16, **_IMAGES),
    "vit, heads of 44": Plan("flash", 528, 12, **_IMAGES),
    "t5-small encoder, bias": Plan("efficient", 512, 8, 6, 16, 500, 2000, inner=2048, bias=True, half=2),
    "llama 1b, 8 of 32 heads": Plan("flash", **_LLAMA),
    "llama 1b on Hopper": Plan("cudnn", **_LLAMA, card="h100"),
}

if __name__ == "__main__":
    for name, plan in PLANS.items():
        saved, peak = peak_of(plan)
        print(f"{name:28}{saved / 1e6:>12,.1f}{peak / 1e6:>12,.1f}")
