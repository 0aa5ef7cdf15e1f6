"""Operators that CUDA refuses, or warns of, after `torch.use_deterministic_algorithms(True)`.

The list is that function's own documentation, less two-dimensional reflection, which newer tests of torch's own expect
to pass. What the CPU's kernel refuses as well is not in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._prims_common import alert_not_deterministic

_ALWAYS = {
    "avg_pool3d_backward": "avg_pool3d_backward_cuda",
    "_adaptive_avg_pool2d_backward": "adaptive_avg_pool2d_backward_cuda",
    "_adaptive_avg_pool3d_backward": "adaptive_avg_pool3d_backward_cuda",
    "adaptive_max_pool2d_backward": "adaptive_max_pool2d_backward_cuda",
    "max_pool3d_with_indices_backward": "max_pool3d_with_indices_backward_cuda",
    "fractional_max_pool2d_backward": "fractional_max_pool2d_backward_cuda",
    "fractional_max_pool3d_backward": "fractional_max_pool3d_backward_cuda",
    "upsample_linear1d_backward": "upsample_linear1d_backward_out_cuda",
    "upsample_bilinear2d_backward": "upsample_bilinear2d_backward_out_cuda",
    "upsample_bicubic2d_backward": "upsample_bicubic2d_backward_out_cuda",
    "upsample_trilinear3d_backward": "upsample_trilinear3d_backward_out_cuda",
    "reflection_pad1d_backward": "reflection_pad1d_backward_out_cuda",
    "reflection_pad3d_backward": "reflection_pad3d_backward_out_cuda",
    "replication_pad1d_backward": "replication_pad1d_backward_cuda",
    "replication_pad2d_backward": "replication_pad2d_backward_cuda",
    "replication_pad3d_backward": "replication_pad3d_backward_cuda",
    "_ctc_loss_backward": "ctc_loss_backward_gpu",
    "grid_sampler_2d_backward": "grid_sampler_2d_backward_cuda",
    "grid_sampler_3d_backward": "grid_sampler_3d_backward_cuda",
}
_MAXIMUM = 2
"""How `EmbeddingBag` numbers its mode `max`."""


def _given(args: Any, kwargs: dict[str, Any], position: int, name: str) -> Any:
    return args[position] if len(args) > position else kwargs.get(name)


_AT_TIMES: dict[str, tuple[str, Callable[[Any, dict[str, Any]], Any]]] = {
    **dict.fromkeys(("put", "put_"), ("put_", lambda args, kwargs: _given(args, kwargs, 3, "accumulate"))),
    "histc": ("_histc_cuda with floating point input", lambda args, kwargs: args[0].is_floating_point()),
    "bincount": ("_bincount_cuda", lambda args, kwargs: _given(args, kwargs, 1, "weights") is not None),
    "median": ("median CUDA with indices output", lambda args, kwargs: len(args) > 1 or kwargs),
    "nanmedian": ("median CUDA with indices output", lambda args, kwargs: len(args) > 1 or kwargs),
    "nll_loss2d_forward": ("nll_loss2d_forward_out_cuda_template", lambda args, kwargs: args[3] != 0),
    "_embedding_bag_backward": ("embedding_bag_backward_cuda_max", lambda args, kwargs: args[8] == _MAXIMUM),
}
NAMES = frozenset([*_ALWAYS, *_AT_TIMES])
"""Operators to ask about."""


def check(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    """Raise or warn as CUDA does, if the program has asked for deterministic algorithms."""
    said, applies = _AT_TIMES.get(name, (_ALWAYS.get(name, name), None))
    if applies is None or applies(args, kwargs):
        alert_not_deterministic(said)
