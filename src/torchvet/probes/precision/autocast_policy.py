"""Which operators CUDA's autocast runs in half precision, which in float32: an emulation, from the published lists.

Source: the PyTorch documentation, "Automatic Mixed Precision package", section "CUDA Op-Specific Behavior", and the
lists that it is made from, `ATen/autocast_mode.h` of torch 2.13.0. A dispatch mode sees operators below autocast, where
composite ones have become others (`softmax` is `_softmax`, `conv2d` is `convolution`): these names are in the tables
too. What is in no list follows its operands by type promotion. Not emulated: composites that leave no trace
(`l1_loss` is `sub`, `abs`, `mean`), whose parts follow their operands here.
"""

from __future__ import annotations

from typing import Literal

from torchvet.probes.base.operators import names
from torchvet.simulate.api import autocast_lists as lists

Policy = Literal["half", "float32", "follows", "first"]
"""`first`: in the dtype of the first operand whatever the others are (batch normalisation)."""

HALF = frozenset(name.partition(".")[0] for name in lists.HALF)
FLOAT32 = frozenset(name.partition(".")[0] for name in (*lists.FLOAT32, *lists.FLOAT32_UNLESS_ASKED, "norm"))
PROMOTE = frozenset(name.partition(".")[0] for name in lists.WIDEST)
"""In the widest dtype of the operands, which is what type promotion gives: the same as `follows`."""

_BELOW_HALF = names(
    "convolution_overrideable mkldnn_convolution cudnn_convolution miopen_convolution mkldnn_rnn_layer _cudnn_rnn "
    "miopen_rnn _prelu_kernel _addmm_activation _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_fused_attention_overrideable"
)
_BELOW_FLOAT32 = names(
    "_softmax _log_softmax _safe_softmax native_group_norm _fused_rms_norm nll_loss_forward nll_loss2d_forward "
    "_cdist_forward _pdist_forward multilabel_margin_loss_forward"
)
_FIRST = names(
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional _batch_norm_with_update "
    "cudnn_batch_norm miopen_batch_norm batch_norm"
)
FILLS = names("masked_fill masked_fill_ fill fill_ full_like")
"""Write a constant: a value that does not fit is refused or becomes an infinity, whatever the model computes."""
SHARES = names("_unsafe_view _reshape_alias lift_fresh alias")
"""Give back what they were given, whatever their schema says."""


def policy_of(name: str, overload: str) -> Policy:
    """What autocast does with an operator, by its name without namespace. Variants with `out` and those that work in
    place are not eligible: they follow their operands."""
    # In-place operators have names of their own (`add_`), which are in no table.
    if overload.endswith("out"):
        return "follows"
    # The published lists first, then what their members are called below autocast.
    if name in HALF or name in _BELOW_HALF:
        return "half"
    if name in FLOAT32 or name in _BELOW_FLOAT32:
        return "float32"
    return "first" if name in _FIRST else "follows"
