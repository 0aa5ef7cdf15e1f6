"""Notes where torch's transformer layers would take their fast path on a GPU: here they go the usual way.

A layer asks `torch.overrides` whether anything listens to torch's functions, as the simulation does. Without a mask
both ways give the same up to rounding.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from torchvet.simulate.refusals import asked

_MASKS = {
    "torch.nn.modules.transformer": ("src_key_padding_mask", "src_mask"),
    "torch.nn.modules.activation": ("key_padding_mask", "attn_mask"),
}
"""What the arguments are called by which a module's layers mask."""
_WHAT = "the fast path of masked transformer layers in evaluation"
_WHY = (
    "the usual way was taken: on a GPU `TransformerEncoderLayer` gives NaN for a sample that is padding throughout, "
    "and `TransformerEncoder` gives 0 for padding"
)


def install() -> None:
    """From now on a layer that asks is noted."""
    original = torch.overrides.has_torch_function

    def has_torch_function(args: Any) -> bool:
        # The layer that asks: its own locals say whether it masks.
        frame = sys._getframe(1)
        masks = _MASKS.get(frame.f_globals.get("__name__", ""), ())
        if masks and not torch.is_grad_enabled() and any(frame.f_locals.get(n) is not None for n in masks):
            asked.setdefault(_WHAT, _WHY)
        return original(args)

    torch.overrides.has_torch_function = has_torch_function
