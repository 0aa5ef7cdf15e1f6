"""Whether tensors are finite: a cheap question first, an exact one where that raises suspicion."""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable, Sequence

import torch

from torchvet.probes.internals import private
from torchvet.probes.internals.simulated import numbers

_WITHOUT_VALUES = tuple(getattr(private.ModeKey, name) for name in ("FAKE", "FUNCTIONAL", "PROXY") if private.ModeKey)
"""Modes of tracing and of sizing: nothing has values, and reading an element fails."""


_SUMMED = frozenset([torch.float32, torch.float64, torch.bfloat16])
"""Dtypes whose sums do not overflow where their elements do not nearly: float16's do."""
_SMALL = 1 << 14
"""Elements up to which tensors are put together first: a reduction of each would cost more."""
_TOGETHER = 1 << 13
"""Elements up to which gradients are put together before they are summed. Measured: of 256 elements that takes a third
of the time, of 8,192 two thirds, of 16,384 as long."""
_MANY = 32
"""How many are put together at a time: a megabyte of float32 at most."""
_FLOATS = _SUMMED | {torch.float16}
PLAIN = frozenset([torch.Tensor])
"""The class of what may be summed one by one. No subclass: one that is spread over ranks would wait for the others at
each sum."""


def followed() -> bool:
    """Whether operators are followed here and not computed. Asked several times a step: nearly always none is."""
    # The count is one call into C++; the modes by key are asked only where some mode is on.
    return private.modes_on() > 0 and any(private.get_dispatch_mode(mode) is not None for mode in _WITHOUT_VALUES)


def numeric(value: object) -> bool:
    """Whether something is a tensor whose elements can be NaN and can be read: no meta, fake or empty one, none of
    those that stand for many within `vmap`, and nothing that is being traced."""
    return (
        isinstance(value, torch.Tensor)
        and (value.is_floating_point() or value.is_complex())
        and value.device.type != "meta"
        and value.layout is torch.strided
        and not value.is_nested
        and value.numel() > 0
        # `item()` of a tensor within `vmap` raises: it stands for a whole batch.
        and not private.is_functorch_wrapped(value)
        and not private.is_fake(value)
        and not followed()
    )


def is_finite(tensor: torch.Tensor) -> bool:
    """Exactly. A sum that is finite proves it at a third of the cost; one that is not may only have overflowed."""
    tensor = numbers(tensor)
    if tensor.numel() == 1:
        # A loss, at every step: what cannot be read says so.
        try:
            # `cmath` takes complex losses as well.
            return cmath.isfinite(tensor.item())
        except RuntimeError:
            pass
    if not numeric(tensor):
        return True
    tensor = tensor.detach()
    # A float16 sum overflows where no element comes near it.
    total = tensor.sum(dtype=torch.float32) if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.sum()
    # Only where the sum is not finite are all elements asked: it may have overflowed.
    return bool(torch.isfinite(total)) or bool(torch.isfinite(tensor).all())


def dense(gradients: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients, and of sparse ones the values that they have."""
    return [g.detach()._values() if g.is_sparse else g for g in map(numbers, gradients)]


def suspicious(gradients: list[torch.Tensor]) -> bool:
    """Whether some gradient may not be finite. A sum or norm that overflows raises suspicion, too: ask `is_finite`
    then.

    On the CPU, where nothing is fused, sums take at most two thirds of the time of all their norms (torch 2.13,
    gradients that the step has just written); elsewhere it is one fused norm and one sync for each device and dtype.
    """
    if not gradients:
        return False
    # `type`, and not `isinstance`: a subclass decides itself what its sum is.
    plain = PLAIN.issuperset(map(type, gradients))
    if not plain:
        gradients = list(map(numbers, gradients))
    first = gradients[0]
    # Asked at every step: others of another dtype than the first, or with a graph, only take longer.
    if first.is_cpu and first.dtype in _SUMMED and not first.requires_grad and plain:
        try:
            total = _total(gradients)
            # True for NaN and infinities.
            return total - total != 0
        except RuntimeError:  # sparse, nested, without data
            pass
    with torch.set_grad_enabled(False):  # `no_grad` is tapped (`train_mode.py`)
        if not gradients[0].is_cuda:
            # Without fused kernels it does not matter what is together: nearly always all are of one kind.
            try:
                return _not_finite(gradients)
            except RuntimeError:  # sparse, on several devices, without data
                pass
        return any(map(_not_finite, _grouped(dense(gradients))))


def _total(gradients: list[torch.Tensor]) -> float:
    """The sum of all elements. Large gradients are summed one by one, small ones many at a time."""
    small = [g for g in gradients if g.numel() <= _TOGETHER]
    sums = [g.sum().item() for g in gradients if g.numel() > _TOGETHER]
    # A call for each small one would take longer than its sum.
    sums += [private.flatten(small[i : i + _MANY]).sum().item() for i in range(0, len(small), _MANY)]
    return sum(sums)


def _not_finite(gradients: list[torch.Tensor]) -> bool:
    return not math.isfinite(torch.stack(private.foreach_norm(gradients)).sum().item())


def _grouped(gradients: Iterable[torch.Tensor]) -> Iterable[list[torch.Tensor]]:
    groups: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
    for one in gradients:
        if numeric(one):
            groups.setdefault((one.device, one.dtype), []).append(one)
    return groups.values()


def readable(tensor: torch.Tensor) -> bool:
    """Whether a tensor's values can be looked at: a plain strided one of an ordinary floating dtype, not empty."""
    return tensor.dtype in _FLOATS and tensor.layout is torch.strided and tensor.numel() > 0 and not tensor.is_meta


def which_not(tensors: Sequence[torch.Tensor]) -> list[int]:
    """The positions of those with a NaN or an infinity."""
    # `cat` and `stack` take only one dtype and device.
    groups: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for position, tensor in enumerate(tensors):
        groups.setdefault((tensor.dtype, tensor.device), []).append(position)
    found: list[int] = []
    with torch.no_grad():
        for positions in groups.values():
            group = [numbers(tensors[p]).detach() for p in positions]
            # One by one only where the sum of all was not finite.
            if not _sums_up(group):
                found += [p for p, t in zip(positions, group, strict=True) if not bool(t.isfinite().all())]
    return sorted(found)


def _sums_up(tensors: list[torch.Tensor]) -> bool:
    """Whether the sum is finite: if so, all are; if not, finite ones may have overflowed. Small ones go in one sum."""
    small = [t.reshape(-1) for t in tensors if t.numel() <= _SMALL]
    sums = [t.sum() for t in tensors if t.numel() > _SMALL]
    if small:
        sums.append(torch.cat(small).sum())
    # In double precision the sum of finite float32 sums does not overflow by itself.
    total = torch.stack([s.double() for s in sums]).sum() if len(sums) > 1 else sums[0]
    return bool(total.isfinite())
