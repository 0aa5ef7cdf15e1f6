"""Which of CUDA's attention kernels takes a call: the conditions of `sdp_utils.cpp` for tensors that are not nested.

The conditions are those of torch 2.13, whose wheels come with a cuDNN of 9.20.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import torch

from torchvet.simulate.operations.attention_memory import Kernel

_HALVES = (torch.float16, torch.bfloat16)
_LARGEST_HEAD = 256
_MATH, _FLASH, _EFFICIENT, _CUDNN = range(4)
"""Of torch's `SDPBackend`."""
_DEFAULT_ORDER = [_FLASH, _EFFICIENT, _MATH, _CUDNN]


class Asked(NamedTuple):
    """A call of `scaled_dot_product_attention`, and the card's compute capability."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    bias: torch.Tensor | None
    dropout: float
    causal: bool
    grouped: bool
    capability: tuple[int, int]

    @property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value."""
        return self.query, self.key, self.value

    @property
    def half(self) -> bool:
        """Whether they have 16 bits."""
        return self.query.dtype in _HALVES

    @property
    def learns(self) -> bool:
        """Whether a backward pass is to follow."""
        return torch.is_grad_enabled() and any(t.requires_grad for t in self.tensors)


def kernel_of(asked: Asked) -> Kernel | None:
    """The kernel that takes it and does not hold the weights; None where they are composed. Raises CUDA's error where
    the program allows none that could."""
    c = torch._C
    kernels: dict[int, tuple[bool, Kernel, Callable[[Asked], bool]]] = {
        _FLASH: (c._get_flash_sdp_enabled(), "flash", _flash),
        _EFFICIENT: (c._get_mem_efficient_sdp_enabled(), "efficient", _efficient),
        _CUDNN: (c._get_cudnn_sdp_enabled(), "cudnn", _cudnn),
    }
    for number in _order(asked.capability):
        if number == _MATH and c._get_math_sdp_enabled():
            return None
        enabled, name, takes = kernels.get(number, (False, None, None))
        # In the order of preference: the first that takes it, as torch chooses.
        if enabled and name is not None and takes is not None and _alike(asked) and takes(asked):
            return name
    raise RuntimeError("No available kernel. Aborting execution.")


def _order(card: tuple[int, int]) -> list[int]:
    """In which they are asked: as the program says, else cuDNN first on the cards that it is built for."""
    order: list[int] = torch._C._get_sdp_priority_order()
    late = os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") == "1"
    if order[: len(_DEFAULT_ORDER)] == _DEFAULT_ORDER and card[0] in (9, 10) and not late:
        return [_CUDNN, _FLASH, _EFFICIENT, _MATH]
    return order


def _alike(asked: Asked) -> bool:
    """What all of these kernels want."""
    query, *others = asked.tensors
    if any(t.dim() != 4 or t.dtype is not query.dtype or t.size(0) != query.size(0) for t in asked.tensors):
        return False
    return all(t.size(2) > 0 for t in asked.tensors) and query.size(3) == others[0].size(3)


def _heads_fit(asked: Asked, shared: bool) -> bool:
    """As many heads of keys and values as of queries, or where the kernel can share them a part of these."""
    heads = [t.size(1) for t in asked.tensors]
    if asked.grouped and shared:
        return heads[1] == heads[2] and heads[0] % max(1, heads[1]) == 0
    return len(set(heads)) == 1


def _dense(asked: Asked, one_may_differ: bool) -> bool:
    return all(t.stride(-1) == 1 or (one_may_differ and t.size(-1) == 1) for t in asked.tensors)


def _flash(asked: Asked) -> bool:
    width, card = asked.query.size(3), asked.capability
    if asked.bias is not None or not asked.half or card < (8, 0):
        return False
    if width > _LARGEST_HEAD or asked.value.size(3) != width or not _heads_fit(asked, shared=True):
        return False
    if asked.causal and asked.query.size(2) != asked.key.size(2):
        return False
    # Little shared memory: backward of the widest heads does not fit.
    wide = 192 < width <= 224 or (width > 224 and asked.dropout > 0)
    if card in ((8, 6), (8, 9), (12, 0), (12, 1)) and asked.learns and wide:
        return False
    return _dense(asked, one_may_differ=True)


def _efficient(asked: Asked) -> bool:
    card, query = asked.capability, asked.query
    if not (asked.half or query.dtype is torch.float32) or (query.dtype is torch.bfloat16 and card < (8, 0)):
        return False
    # Products on tensor cores take operands of 16 bytes.
    cores = card >= (8, 0) or (card >= (7, 0) and asked.half)
    step = 16 // query.element_size() if cores else 1
    if any(size == 0 or size % step for size in (query.size(3), asked.value.size(3))):
        return False
    aligned = card < (8, 0) or all(t.storage_offset() % step == 0 for t in asked.tensors)
    return aligned and _heads_fit(asked, shared=False) and _dense(asked, one_may_differ=False)


def _cudnn(asked: Asked) -> bool:
    if not asked.half or asked.capability < (8, 0) or exact_wanted() or not _heads_fit(asked, shared=True):
        return False
    if (asked.dropout * 16) % 1 or not _narrow(asked):
        return False
    if asked.bias is not None and (asked.bias.requires_grad or asked.bias.dim() not in (2, 4)):
        return False
    short = asked.key.size(2) == 1 or (asked.dropout > 0 and asked.query.size(2) == 1)
    return not short and _dense(asked, one_may_differ=True)


def _narrow(asked: Asked) -> bool:
    """Whether cuDNN has kernels for such heads: one wider shape on its newest cards, which is all before its 9.23."""
    widths = (asked.query.size(3), asked.value.size(3))
    widest = 192 if widths == (192, 128) and asked.capability[0] in (9, 10) else 128
    return all(w <= widest and w % 8 == 0 for w in widths)


def exact_wanted() -> bool:
    """Whether the program refuses kernels that add up in any order."""
    return torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()
