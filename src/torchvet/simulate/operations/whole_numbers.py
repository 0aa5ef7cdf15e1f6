"""Operators that the CPU does on whole numbers and CUDA refuses, by the names of CUDA's kernels."""

from __future__ import annotations

from typing import Any

import torch

KERNELS = {
    **dict.fromkeys(("mm", "addmm"), "addmm_cuda"),
    **dict.fromkeys(("bmm", "baddbmm", "addbmm"), "baddbmm_cuda"),
    **dict.fromkeys(("mv", "addmv"), "addmv_impl_cuda"),
    "dot": "dot",
    "vdot": "vdot",
    "max_pool2d_with_indices": "max_pool2d",
    "max_pool3d_with_indices": "max_pool3d_with_indices_out_frame",
    "avg_pool2d": "avg_pool2d_out_cuda_frame",
    "avg_pool3d": "avg_pool3d_out_cuda",
    **dict.fromkeys(("upsample_bilinear2d", "_upsample_bilinear2d_aa"), "upsample_bilinear2d_out_frame"),
    "_upsample_bicubic2d_aa": "upsample_bilinear2d_out_frame",
    "upsample_bicubic2d": "upsample_bicubic2d_out_frame",
}
_NAMES = {torch.uint8: "Byte", torch.int8: "Char", torch.int16: "Short", torch.int32: "Int", torch.int64: "Long"}


def check(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    """Raise CUDA's refusal."""
    first = args[0]
    kind = _NAMES.get(first.dtype) if isinstance(first, torch.Tensor) and first.layout is torch.strided else None
    if kind is not None:
        raise NotImplementedError(f"\"{KERNELS[name]}\" not implemented for '{kind}'")
