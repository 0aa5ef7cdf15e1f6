"""What operators take on a GPU, forward and backward, by arithmetic: no torch, nothing of torchvet.

What each allocates, saves and gives back is written down from PyTorch's sources; the comments name the files. Blocks of
memory are Python objects: they go when nothing refers to them, as tensors do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# The ledger ----------------------------------------------------------------------------------------------------------


class Ledger:
    """Bytes that are held, the most that were, and what waits for the backward pass."""

    def __init__(self) -> None:
        self.now = self.peak = self.saved = 0
        self.tape: list[tuple[list[Slot], Callable[..., Any]]] = []
        self.backward = False
        self.workspace, self.workspaces = 0, [False, False]

    def product(self) -> None:
        """cuBLAS keeps a workspace for each of the two threads (`CUDABlas.cpp`, `CublasHandlePool.cpp`)."""
        if not self.workspaces[self.backward]:
            self.workspaces[self.backward] = True
            self.take(self.workspace)

    def take(self, size: int) -> None:
        """Hold so many more."""
        self.now += size
        self.peak = max(self.peak, self.now)


ledger = Ledger()


class Bytes:
    """Memory of one tensor."""

    def __init__(self, size: int) -> None:
        self.size = size
        ledger.take(size)

    def __del__(self) -> None:
        ledger.now -= self.size


class View(Bytes):
    """A part of a gradient."""

    def __init__(self, whole: Bytes, size: int) -> None:
        self.whole, self.size = whole, size

    def __del__(self) -> None:
        pass


class Slot:
    """Where the gradients of a tensor of `size` bytes are added up."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.grad: Bytes | None = None

    def give(self, grad: Bytes) -> None:
        """One more, added in place where the first belongs to nobody else (`input_buffer.cpp`)."""
        if self.grad is None:
            self.grad = grad
        elif sys.getrefcount(self.grad) > 2:
            self.grad = Bytes(self.size)


class Value:
    """A tensor: `count` numbers of `item` bytes. One without a slot has no gradient."""

    def __init__(self, count: int, item: int, memory: Bytes | None = None, slot: Slot | None = None) -> None:
        self.count, self.item = count, item
        self.memory = memory or Bytes(count * item)
        self.slot = slot


def derived(given: list[Value], count: int, item: int, back: Callable[..., Any], memory: Bytes | None = None) -> Value:
    """The result of an operator: `back(gradient)` gives pairs of slots and gradients, and holds what was saved."""
    out = Value(count, item, memory)
    if any(v.slot for v in given):
        out.slot = Slot(count * item)
        ledger.tape.append(([out.slot], back))
    return out


def go_back(loss: Value, ones: Bytes) -> None:
    """The backward pass, in the reverse order of the forward pass. Gradients are cast or summed to the size of what
    they belong to before what was saved is released (`call_function` and `evaluate_function` of `engine.cpp`)."""
    ledger.backward = True
    assert loss.slot
    loss.slot.give(ones)
    while ledger.tape:
        outs, back = ledger.tape.pop()
        grads = [slot.grad for slot in outs]
        for slot in outs:
            slot.grad = None
        found = back(*grads) if any(grads) else []
        del grads, outs
        for place, (slot, grad) in enumerate(found):
            if slot and grad.size != slot.size:
                found[place] = slot, Bytes(slot.size)
        back = grad = None
        while found:
            slot, grad = found.pop(0)
            if slot:
                slot.give(grad)
            del slot, grad


# Operators -----------------------------------------------------------------------------------------------------------


def parameter(count: int, item: int) -> Value:
    """A leaf."""
    return Value(count, item, slot=Slot(count * item))


def cast(x: Value, item: int) -> Value:
    """Another dtype; the gradient is cast back."""
    slot, size = x.slot, x.count * x.item
    return derived([x], x.count, item, lambda g: [(slot, Bytes(size))])


def linear(x: Value, weight: Value, bias: Value | None, wide: int) -> Value:
    """`addmm` or `mm`: saves what it was given (`derivatives.yaml`); a gradient of the bias is summed afterwards."""
    ledger.product()
    count = x.count // (weight.count // wide) * wide
    saved, slots = (x.memory, weight.memory), (x.slot, weight.slot, bias.slot if bias else None)
    sizes = x.count * x.item, weight.count * weight.item

    def back(g: Bytes) -> Any:
        ledger.product()
        assert saved
        rows = [(slots[2], g)] if slots[2] else []
        return rows + [(s, Bytes(n)) for s, n in zip(slots, sizes, strict=False) if s]

    return derived([x, weight], count, x.item, back)


def norm(x: Value, params: list[Value]) -> Value:
    """Layer norm, or with one parameter RMS norm: means and deviations are float32 (`cuda/layer_norm_kernel.cu`)."""
    memory, rows = Bytes(x.count * x.item), x.count // params[0].count
    saved = [x.memory, *(Bytes(4 * rows) for _ in params)]
    slot, sizes, slots = x.slot, x.count * x.item, [(p.slot, p.count * p.item) for p in params]

    def back(g: Bytes) -> Any:
        assert saved
        return [(slot, Bytes(sizes)), *((s, Bytes(n)) for s, n in slots)]

    return derived([x, *params], x.count, x.item, back, memory)


def dropout(x: Value) -> Value:
    """`native_dropout`: a mask of a byte each is saved (`cuda/Dropout.cu`)."""
    memory, mask, slot, size = Bytes(x.count * x.item), Bytes(x.count), x.slot, x.count * x.item

    def back(g: Bytes) -> Any:
        assert mask
        return [(slot, Bytes(size))]

    return derived([x], x.count, x.item, back, memory)


def bent(x: Value) -> Value:
    """GELU or SiLU: saves what it was given."""
    saved, slot, size = x.memory, x.slot, x.count * x.item

    def back(g: Bytes) -> Any:
        assert saved
        return [(slot, Bytes(size))]

    return derived([x], x.count, x.item, back)


def times(x: Value, y: Value) -> Value:
    """A product: each factor is saved where the other learns."""
    saved = [y.memory if x.slot else None, x.memory if y.slot else None]
    slots = [(v.slot, x.count * x.item) for v in (x, y) if v.slot]

    def back(g: Bytes) -> Any:
        assert saved
        return [(s, Bytes(n)) for s, n in slots]

    return derived([x, y], x.count, x.item, back)


def plus(x: Value, y: Value) -> Value:
    """A sum: both get the gradient itself."""
    slots = x.slot, y.slot
    return derived([x, y], x.count, max(x.item, y.item), lambda g: [(s, g) for s in slots])


def embedding(table: Value, indices: Bytes, width: int) -> Value:
    """Rows of a table. More than 3,072 are sorted in the backward pass, and their parts are summed in float32
    (`cuda/Embedding.cu`, `cuda/EmbeddingBackwardKernel.cu`)."""
    count, slot, rows = indices.size // 8, table.slot, table.count // width

    def back(g: Bytes) -> Any:
        assert indices
        sort = Bytes(16 * count) if count > 3072 else None
        out = Bytes(table_size)
        if sort:
            some = min(count, rows)
            parts = [8 * count, 8 * some, 8 * some, 8 * (count // 10 + some), 4 * width * (count // 10 + some)]
            assert [Bytes(n) for n in parts]
        return [(slot, out)]

    table_size = table.count * table.item
    return derived([table], count * width, table.item, back)


def log_softmax(x: Value) -> Value:
    """Keeps its result."""
    slot, size = x.slot, x.count * x.item
    saved = Bytes(size)

    def back(g: Bytes) -> Any:
        assert saved
        return [(slot, Bytes(size))]

    return derived([x], x.count, x.item, back, saved)


def cross_entropy(x: Value, targets: Bytes, item: int) -> Value:
    """`cross_entropy_loss` asks `log_softmax` for the dtype that it was given, so autocast leaves that as it is, and
    makes only what `nll_loss` is given float32 (`nn/LossNLL.cpp`, `autocast_mode.h`)."""
    logs = log_softmax(x)
    logs = logs if logs.item == item else cast(logs, item)
    slot, size, saved = logs.slot, logs.count * logs.item, [logs.memory, targets, Bytes(item)]

    def back(g: Bytes) -> Any:
        assert saved
        return [(slot, Bytes(size))]

    return derived([logs], 1, item, back)


def split(x: Value, widths: list[int]) -> list[Value]:
    """Views of the last dimension's parts: their gradients are put together again."""
    whole, size = x.slot, x.count * x.item
    parts = [Value(x.count * w // sum(widths), x.item, x.memory) for w in widths]
    for part in parts:
        part.slot = Slot(part.count * part.item)
    ledger.tape.append(([p.slot for p in parts if p.slot], lambda *g: [(whole, Bytes(size))]))
    return parts


def selected(x: Value, count: int) -> Value:
    """A view of a part: the gradient is written into zeros of the whole."""
    slot, size = x.slot, x.count * x.item
    return derived([x], count, x.item, lambda g: [(slot, Bytes(size))], x.memory)


def copied(x: Value, count: int) -> Value:
    """A copy that pads, or makes dense: the gradient of a padded one is copied (`constant_pad_nd_backward`)."""
    slot, size, same = x.slot, x.count * x.item, x.count == count
    return derived([x], count, x.item, lambda g: [(slot, g if same else Bytes(size))])


# Attention -----------------------------------------------------------------------------------------------------------


def up(number: int, step: int) -> int:
    """The next multiple."""
    return -(-number // step) * step


@dataclass(frozen=True)
class Shape:
    """Of a call: `groups` heads of keys and values."""

    batch: int
    heads: int
    groups: int
    length: int
    head: int
    item: int

    @property
    def rows(self) -> int:
        """Sums of a call, one for each query of each head."""
        return self.batch * self.heads * self.length


def flash(q: Value, k: Value, v: Value, s: Shape) -> Value:
    """`mha_fwd` and `mha_bwd` of `flash_attn/flash_api.cpp`; heads are padded to a multiple of 8 in
    `transformers/attention.cpp`, contiguous, so that the kernel's order is another one and the backward pass copies."""
    wide, padded = up(s.head, 8), s.head % 8 > 0
    if padded:
        q, k, v = (copied(x, x.count // s.head * wide) for x in (q, k, v))
    out = Bytes(s.rows * wide * s.item)
    saved = [q.memory, k.memory, v.memory, out, Bytes(4 * s.rows), Bytes(16), Bytes(8)]
    slots, sizes = [x.slot for x in (q, k, v)], [x.count * x.item for x in (q, k, v)]

    def back(g: Bytes) -> Any:
        assert saved
        held = [Bytes(s.rows * wide * s.item) for _ in range(2 * padded)]
        grads = [Bytes(n) for n in sizes]
        sums = s.batch * s.heads * up(s.length, 128)
        held += [Bytes(4 * sums), Bytes(4 * sums * up(wide, 32 if wide <= 128 else 64))]
        held += [Bytes(sizes[0]) for _ in range(2 * (s.groups != s.heads))]
        return list(zip(slots, grads, strict=True))

    result = derived([q, k, v], s.rows * wide, s.item, back, out)
    return copied(selected(result, s.rows * s.head), s.rows * s.head) if padded else result


def tile_of(s: Shape, card: str) -> tuple[int, int]:
    """Queries and keys of a block of the backward kernel that fits first (`kernels/cutlassB.h`): heads up to 128."""
    if s.head <= 64:
        return 64, 64
    return (128, 128 if s.item == 2 and card != "t4" else 64)


def efficient(q: Value, k: Value, v: Value, bias: Value | None, s: Shape, card: str) -> Value:
    """`_efficient_attention_forward` and its backward (`cuda/attention.cu`, `attention_backward.cu`): the random state
    is on the host, sums come in blocks of 32, and gradients of queries are summed in a workspace
    (`mem_eff_attention/kernel_backward.h`)."""
    out = Bytes(s.rows * s.head * s.item)
    lse = Bytes(4 * s.batch * s.heads * up(s.length, 32))
    saved = [q.memory, k.memory, v.memory, out, lse, bias and bias.memory]
    slots, size, learned = [x.slot for x in (q, k, v)], q.count * q.item, bias.slot if bias else None
    i, j = tile_of(s, card)

    def back(g: Bytes) -> Any:
        assert saved
        grads = list(zip(slots, [Bytes(size) for _ in slots], strict=True))
        if learned:
            grads.append((learned, Bytes(s.rows * up(s.length, 16) * s.item)))
        if s.item == 4:  # the product of gradients and results, its sums, and these in another order
            held = [Bytes(4 * s.rows * s.head), Bytes(4 * s.rows), Bytes(4 * s.rows)]
            del held
        held = [Bytes(4 * s.rows), Bytes(s.batch * s.heads * -(-s.length // i) * -(-s.head // j) * (16 + 4 * i * j))]
        del held
        return grads

    return derived([q, k, v, *([bias] if bias else [])], s.rows * s.head, s.item, back, out)


def cudnn(q: Value, k: Value, v: Value, s: Shape) -> Value:
    """`run_cudnn_SDP_fprop` and `_bprop` of `cudnn/MHA.cpp`. The workspace is what cudnn-frontend asks for
    (`scaled_dot_product_flash_attention.h`); what cuDNN asks for beside it is not public."""
    out = Bytes(s.rows * s.head * s.item)
    saved = [q.memory, k.memory, v.memory, out, Bytes(4 * s.rows), Bytes(8), Bytes(8)]
    slots, sizes = [x.slot for x in (q, k, v)], [x.count * x.item for x in (q, k, v)]

    def back(g: Bytes) -> Any:
        assert saved
        grads = [Bytes(n) for n in sizes]
        assert Bytes(4 * s.rows * s.head + 4 * s.rows)
        return list(zip(slots, grads, strict=True))

    return derived([q, k, v], s.rows * s.head, s.item, back, out)


def by_heads(x: Value) -> Value:
    """Heads in front of positions: a view of what a product must copy, and its gradient is put back by a copy."""
    slot, size = x.slot, x.count * x.item
    viewed = derived([x], x.count, x.item, lambda g: [(slot, Bytes(size))], x.memory)
    return copied(viewed, x.count)


def multiplied(x: Value, y: Value, count: int) -> Value:
    """`bmm`."""
    ledger.product()
    saved, slots = (x.memory, y.memory), [(v.slot, v.count * v.item) for v in (x, y)]

    def back(g: Bytes) -> Any:
        assert saved
        return [(s, Bytes(n)) for s, n in slots]

    return derived([x, y], count, x.item, back)


def changed(x: Value, *saved: Bytes) -> Value:
    """A product with a number, or places overwritten by a mask that is saved."""
    slot, size = x.slot, x.count * x.item

    def back(g: Bytes) -> Any:
        assert all(saved)
        return [(slot, Bytes(size))]

    return derived([x], x.count, x.item, back)


def softmax(x: Value) -> Value:
    """Keeps its result. The backward pass multiplies it by the gradient first, into memory of its own
    (`softmax_backward_cuda_out` of `cuda/SoftMax.cu`)."""
    slot, size = x.slot, x.count * x.item
    saved = Bytes(size)

    def back(g: Bytes) -> Any:
        assert saved
        found = [(slot, Bytes(size))]
        assert Bytes(size)
        return found

    return derived([x], x.count, x.item, back, saved)


def written(q: Value, k: Value, v: Value, hidden: Value, s: Shape) -> Value:
    """See `attention_models.Attention.by_hand`."""
    weights = changed(multiplied(by_heads(q), by_heads(k), s.rows * s.length))
    weights = changed(weights, hidden.memory)
    weights = softmax(weights)
    weights = dropout(weights)
    return copied(multiplied(weights, by_heads(v), s.rows * s.head), s.rows * s.head)
