"""Which of CUDA's attention kernels takes a call: the conditions of `sdp_utils.cpp` for tensors that are not nested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch

Kernel = Literal["flash", "efficient", "cudnn"]
_HALVES = (torch.float16, torch.bfloat16)
_LARGEST_HEAD = 256


class Asked(NamedTuple):
    """A call of `scaled_dot_product_attention`, and the card's compute capability."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    masked: bool
    dropout: bool
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
    kernels: tuple[tuple[bool, Kernel, Callable[[Asked], bool]], ...] = (
        (c._get_flash_sdp_enabled(), "flash", _flash),
        (c._get_mem_efficient_sdp_enabled(), "efficient", _efficient),
        (c._get_cudnn_sdp_enabled(), "cudnn", _cudnn),
    )
    able = (name for enabled, name, takes in kernels if enabled and takes(asked))
    found = next(able, None) if _alike(asked) else None
    if found is None and not c._get_math_sdp_enabled():
        raise RuntimeError("No available kernel. Aborting execution.")
    return found


def _alike(asked: Asked) -> bool:
    """What all of these kernels want."""
    query, key, value = asked.tensors
    if any(t.dim() != 4 or t.dtype is not query.dtype or t.size(0) != query.size(0) for t in asked.tensors):
        return False
    heads = query.size(1), key.size(1), value.size(1)
    fits = heads[0] % max(1, heads[1]) == 0 and heads[1] == heads[2] if asked.grouped else len(set(heads)) == 1
    return fits and all(t.size(2) > 0 for t in asked.tensors) and query.size(3) == key.size(3)


def _dense(asked: Asked, one_may_differ: bool) -> bool:
    return all(t.stride(-1) == 1 or (one_may_differ and t.size(-1) == 1) for t in asked.tensors)


def _flash(asked: Asked) -> bool:
    width, card = asked.query.size(3), asked.capability
    if asked.masked or not asked.half or card < (8, 0) or width > _LARGEST_HEAD or asked.value.size(3) != width:
        return False
    if asked.causal and asked.query.size(2) != asked.key.size(2):
        return False
    # Little shared memory: backward of the widest heads does not fit.
    wide = 192 < width <= 224 or (width > 224 and asked.dropout)
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
    return aligned and _dense(asked, one_may_differ=False)


def _cudnn(asked: Asked) -> bool:
    widths = (asked.query.size(3), asked.value.size(3))
    if not asked.half or asked.capability < (8, 0) or any(w > 128 or w % 8 for w in widths):
        return False
    short = asked.key.size(2) == 1 or (asked.dropout and asked.query.size(2) == 1)
    return not short and _dense(asked, one_may_differ=True)
