"""Whether tensors are finite: a cheap question first, an exact one where that raises suspicion."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch

_FOREACH_LAYOUTS = (torch.strided,)


def numeric(value: object) -> bool:
    """Whether something is a tensor whose elements can be NaN and can be read: no meta, fake or empty one."""
    return (
        isinstance(value, torch.Tensor)
        and (value.is_floating_point() or value.is_complex())
        and value.device.type != "meta"
        and value.layout is torch.strided
        and value.numel() > 0
    )


def is_finite(tensor: torch.Tensor) -> bool:
    """Exactly. A sum that is finite proves it at a third of the cost; one that is not may only have overflowed."""
    if not numeric(tensor):
        return True
    tensor = tensor.detach()
    if tensor.numel() == 1:
        return bool(torch.isfinite(tensor))
    total = tensor.sum(dtype=torch.float32) if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.sum()
    return bool(torch.isfinite(total)) or bool(torch.isfinite(tensor).all())


def largest_is_finite(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    """A scalar that is finite if all tensors of a device are (and may not be where a norm overflows). No sync."""
    return torch.stack(torch._foreach_norm(list(gradients))).sum()


def suspicious(gradients: Iterable[torch.Tensor]) -> bool:
    """Whether some gradient may not be finite: one fused norm and one sync for each device and dtype."""
    groups: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
    for one in gradients:
        if one.is_sparse:
            one = one._values()
        if numeric(one):
            groups.setdefault((one.device, one.dtype), []).append(one.detach())
    return any(not math.isfinite(largest_is_finite(group).item()) for group in groups.values())
