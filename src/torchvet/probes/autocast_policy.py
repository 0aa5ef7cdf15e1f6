"""Which operators CUDA's autocast runs in half precision, which in float32: an emulation, from the published lists.

Source: the PyTorch documentation, "Automatic Mixed Precision package", section "CUDA Op-Specific Behavior", and the
lists that it is made from, `ATen/autocast_mode.h` of torch 2.13.0. A dispatch mode sees operators below autocast, where
composite ones have become others (`softmax` is `_softmax`, `conv2d` is `convolution`): these names are in the tables
too. What is in no list follows its operands by type promotion. Not emulated: composites that leave no trace
(`l1_loss` is `sub`, `abs`, `mean`), whose parts follow their operands here.
"""

from __future__ import annotations

from typing import Literal

Policy = Literal["half", "float32", "follows", "first"]
"""`first`: in the dtype of the first operand whatever the others are (batch normalisation)."""

HALF = frozenset(
    [
        "_convolution",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_tbc",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "convolution",
        "prelu",
        "addmm",
        "addmv",
        "addr",
        "matmul",
        "einsum",
        "mm",
        "mv",
        "linalg_vecdot",
        "linear",
        "addbmm",
        "baddbmm",
        "bmm",
        "chain_matmul",
        "linalg_multi_dot",
        "_thnn_fused_lstm_cell",
        "_thnn_fused_gru_cell",
        "lstm_cell",
        "gru_cell",
        "rnn_tanh_cell",
        "rnn_relu_cell",
        "_scaled_dot_product_flash_attention",
        "scaled_dot_product_attention",
    ]
)
FLOAT32 = frozenset(
    [
        "acos",
        "asin",
        "cosh",
        "erfinv",
        "exp",
        "expm1",
        "log",
        "log10",
        "log2",
        "log1p",
        "reciprocal",
        "rsqrt",
        "sinh",
        "tan",
        "pow",
        "softplus",
        "layer_norm",
        "native_layer_norm",
        "rms_norm",
        "group_norm",
        "frobenius_norm",
        "nuclear_norm",
        "cosine_similarity",
        "poisson_nll_loss",
        "cosine_embedding_loss",
        "nll_loss",
        "nll_loss2d",
        "hinge_embedding_loss",
        "kl_div",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "mse_loss",
        "margin_ranking_loss",
        "multilabel_margin_loss",
        "soft_margin_loss",
        "triplet_margin_loss",
        "multi_margin_loss",
        "binary_cross_entropy_with_logits",
        "dist",
        "pdist",
        "cdist",
        "renorm",
        "logsumexp",
        "upsample_nearest1d",
        "_upsample_nearest_exact1d",
        "upsample_nearest2d",
        "_upsample_nearest_exact2d",
        "upsample_nearest3d",
        "_upsample_nearest_exact3d",
        "upsample_linear1d",
        "upsample_bilinear2d",
        "_upsample_bilinear2d_aa",
        "upsample_trilinear3d",
        "upsample_bicubic2d",
        "_upsample_bicubic2d_aa",
        "prod",
        "softmax",
        "log_softmax",
        "cumprod",
        "cumsum",
        "linalg_vector_norm",
        "linalg_matrix_norm",
        "sum",
        "norm",
    ]
)
PROMOTE = frozenset(
    [
        "addcdiv",
        "addcmul",
        "atan2",
        "bilinear",
        "cross",
        "dot",
        "vdot",
        "grid_sampler",
        "index_put",
        "tensordot",
        "scatter_add",
    ]
)
"""In the widest dtype of the operands, which is what type promotion gives: the same as `follows`."""

_BELOW_HALF = frozenset(
    [
        "convolution_overrideable",
        "mkldnn_convolution",
        "cudnn_convolution",
        "miopen_convolution",
        "mkldnn_rnn_layer",
        "_cudnn_rnn",
        "miopen_rnn",
        "_prelu_kernel",
        "_addmm_activation",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_fused_attention_overrideable",
    ]
)
_BELOW_FLOAT32 = frozenset(
    [
        "_softmax",
        "_log_softmax",
        "_safe_softmax",
        "native_group_norm",
        "_fused_rms_norm",
        "nll_loss_forward",
        "nll_loss2d_forward",
        "_cdist_forward",
        "_pdist_forward",
        "multilabel_margin_loss_forward",
    ]
)
_FIRST = frozenset(
    [
        "native_batch_norm",
        "_native_batch_norm_legit",
        "_native_batch_norm_legit_functional",
        "_batch_norm_with_update",
        "cudnn_batch_norm",
        "miopen_batch_norm",
        "batch_norm",
    ]
)
FILLS = frozenset(["masked_fill", "masked_fill_", "fill", "fill_", "full_like"])
"""Write a constant: a value that does not fit is refused or becomes an infinity, whatever the model computes."""
SHARES = frozenset(["_unsafe_view", "_reshape_alias", "lift_fresh", "alias"])
"""Give back what they were given, whatever their schema says."""


def policy_of(name: str, overload: str) -> Policy:
    """What autocast does with an operator, by its name without namespace. Variants with `out` and those that work in
    place are not eligible: they follow their operands."""
    if overload.endswith("out"):
        return "follows"
    if name in HALF or name in _BELOW_HALF:
        return "half"
    if name in FLOAT32 or name in _BELOW_FLOAT32:
        return "float32"
    return "first" if name in _FIRST else "follows"
