"""What CUDA's attention kernels allocate while they run, beside their results, in bytes.

The sizes are those of PyTorch's sources under `aten/src/ATen/native/transformers/cuda` and of cudnn-frontend, as far as
they are public: what cuDNN's own engines ask for beside is not. No torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

Kernel = Literal["flash", "efficient", "cudnn"]


class Call(NamedTuple):
    """One call. `groups` are the heads of keys, `item` the bytes of a number, `copies` those of gradients and results
    that are not laid out as the kernel wants them."""

    batch: int
    heads: int
    groups: int
    queries: int
    keys: int
    width: int
    value_width: int
    item: int
    capability: tuple[int, int]
    processors: int
    dropout: bool
    copies: tuple[int, ...] = ()
    deterministic: bool = False

    @property
    def rows(self) -> int:
        """Queries of all heads."""
        return self.batch * self.heads * self.queries

    @property
    def widest(self) -> int:
        """What decides which of the efficient kernels fits."""
        return max(self.width, self.value_width)


def up(number: int, step: int) -> int:
    """The next multiple of a step."""
    return -(-number // step) * step


def _rounded(width: int) -> int:
    return up(width, 32 if width <= 128 else 64)


def while_forward(kernel: Kernel, call: Call) -> Iterable[int]:
    """Of the forward pass."""
    if kernel == "flash":
        # Without dropout few queries are shared out by keys, and put together again (`set_params_splitkv`).
        splits = 1 if call.dropout else _splits(call)
        return [] if splits == 1 else [4 * splits * call.rows, 4 * splits * call.rows * _rounded(call.width)]
    if kernel == "efficient" and call.item == 2 and call.widest > 128:
        return [4 * call.rows * call.value_width]  # `kNeedsOutputAccumulatorBuffer` of `kernel_forward.h`
    return []


def _splits(call: Call) -> int:
    """`num_splits_heuristic` of `flash_api.cpp`: the fewest that keep the processors 85 % as busy as the best."""
    blocks = call.batch * call.heads * -(-call.queries // 64)
    places = 2 * call.processors
    if blocks >= 0.8 * places:
        return 1
    columns = -(-call.keys // (256 if call.width <= 64 else 128 if call.width <= 128 else 64))
    efficiencies = {}
    for n in range(1, min(128, places, columns) + 1):
        if n == 1 or -(-columns // n) != -(-columns // (n - 1)):
            waves = blocks * n / places
            efficiencies[n] = waves / -(-blocks * n // places)
    best = max(efficiencies.values(), default=0.0)
    return next((n for n, efficiency in efficiencies.items() if efficiency >= 0.85 * best), 1)


def while_backward(kernel: Kernel, call: Call) -> list[list[int]]:
    """Of the backward pass, once its results are there: phases, of which each begins when the one before is over."""
    if kernel == "flash":
        return [[*call.copies, *_flash(call)]]
    if kernel == "cudnn":
        # `dQ_accum` and `softmax_sum` of `scaled_dot_product_flash_attention.h`, in one workspace.
        return [[4 * call.rows * call.width + 4 * call.rows]]
    copied, delta, workspace = call.copies[:1], 4 * call.rows, _workspace(call)
    if call.item == 2 and (call.capability[0] != 7 or call.capability >= (7, 5) or call.widest <= 128):
        return [[*copied, delta, workspace]]
    # Elsewhere the kernel does not add up by itself what gradients and results have in common.
    return [[*copied, 4 * call.rows * call.value_width, delta, delta], [*copied, delta, workspace]]


def _flash(call: Call) -> list[int]:
    """`mha_bwd` of `flash_api.cpp`: gradients of queries are added up in float32, those of shared keys head by head."""
    heads, rounded = call.batch * call.heads, up(call.queries, 128)
    parts = -(-call.processors // heads) if call.deterministic else 1
    expanded = [heads * call.keys * call.width * call.item] * 2 if call.groups != call.heads else []
    return [4 * heads * rounded, 4 * parts * heads * rounded * _rounded(call.width), *expanded]


def _workspace(call: Call) -> int:
    """`workspace_size` of `mem_eff_attention/kernel_backward.h`: what gradients of queries are added up in, and those
    of keys and values where they do not fit into registers."""
    queries, keys = _tile(call)
    numbers = -(-call.queries // queries) * -(-call.width // keys) * (4 + queries * keys)
    if call.item == 2 and (call.widest > 128 or (call.widest > 64 and queries == 64)):
        heads = call.batch * call.heads
        few = heads >= 256 and call.keys <= 2 * keys
        parts = max(1, min(1 if few else -(-call.keys // keys), 200 // heads))
        numbers += parts * keys * (up(call.width, queries) + up(call.value_width, queries))
    return 4 * call.batch * call.heads * up(numbers, 4)


def _tile(call: Call) -> tuple[int, int]:
    """Queries and keys of a block of the kernel that fits first (`kernels/cutlassB.h`)."""
    small = call.capability in ((8, 6), (8, 9), (12, 0), (12, 1))  # too little shared memory for the widest blocks
    if call.widest <= 64 or (call.item == 4 and call.capability < (8, 0)):
        return 64, 64
    if call.item == 4 or call.capability < (8, 0) or call.widest > 128:
        return 128, 64
    if small:
        fits = call.capability[0] == 8 and call.widest <= 96 and not call.dropout
        return (128 if fits else 64), 64
    return 128, 128
