"""Which of many tensors are not finite: one reduction a dtype and device, one number fetched."""

from __future__ import annotations

from collections.abc import Sequence

import torch

_SMALL = 1 << 14
"""Elements up to which tensors are put together first: a reduction of each would cost more."""
_FLOATS = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))


def readable(tensor: torch.Tensor) -> bool:
    """Whether a tensor's values can be looked at: a plain strided one of an ordinary floating dtype, not empty."""
    return tensor.dtype in _FLOATS and tensor.layout is torch.strided and tensor.numel() > 0 and not tensor.is_meta


def which_not(tensors: Sequence[torch.Tensor]) -> list[int]:
    """The positions of those with a NaN or an infinity."""
    groups: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for position, tensor in enumerate(tensors):
        groups.setdefault((tensor.dtype, tensor.device), []).append(position)
    found: list[int] = []
    with torch.no_grad():
        for positions in groups.values():
            group = [tensors[p].detach() for p in positions]
            if not _sums_up(group):
                found += [p for p, t in zip(positions, group, strict=True) if not bool(t.isfinite().all())]
    return sorted(found)


def _sums_up(tensors: list[torch.Tensor]) -> bool:
    """Whether the sum is finite: if so, all are; if not, finite ones may have overflowed. Small ones go in one sum."""
    small = [t.reshape(-1) for t in tensors if t.numel() <= _SMALL]
    sums = [t.sum() for t in tensors if t.numel() > _SMALL]
    if small:
        sums.append(torch.cat(small).sum())
    total = torch.stack([s.double() for s in sums]).sum() if len(sums) > 1 else sums[0]
    return bool(total.isfinite())
