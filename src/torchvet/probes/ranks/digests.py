"""Digests of tensors by their bits: equal ones mean equal values on all ranks."""

from __future__ import annotations

from collections.abc import Callable

import torch

_ELEMENTS = 8192
"""Of a tensor, evenly spaced."""
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def is_sharded(parameter: torch.Tensor) -> bool:
    # By name: importing these classes would import torch.distributed's parts.
    return any(kind.__name__ in ("DTensor", "ShardedTensor", "FlatParameter") for kind in type(parameter).__mro__)


def digests(tensors: list[torch.Tensor]) -> list[int | None]:
    """Of several at once: one copy from each device. None for those that cannot be read."""
    return _of_each(tensors, digest)


def are_constant(tensors: list[torch.Tensor]) -> list[bool]:
    """Whether each has but one value, as biases of nothing have: by its first and its last element."""
    return list(map(bool, _of_each(tensors, lambda one: one.reshape(-1)[0] == one.reshape(-1)[-1])))


def _of_each(tensors: list[torch.Tensor], figure: Callable[[torch.Tensor], torch.Tensor]) -> list[int | None]:
    found: list[int | None] = [None] * len(tensors)
    by_device: dict[torch.device, list[tuple[int, torch.Tensor]]] = {}
    for number, one in enumerate(tensors):
        if not is_sharded(one) and one.layout is torch.strided and one.numel():
            by_device.setdefault(one.device, []).append((number, figure(one)))
    # One wait for each device, for all its parameters.
    for pairs in by_device.values():
        for (number, _), value in zip(pairs, torch.stack([d for _, d in pairs]).tolist(), strict=True):
            found[number] = value
    return found


def digest(tensor: torch.Tensor) -> torch.Tensor:
    """A sum over the bits of evenly spaced elements, each with a weight of its own, modulo 2**64."""
    flat = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    # The same positions on every rank.
    flat = flat.reshape(-1)[:: max(1, flat.numel() // _ELEMENTS)].contiguous()
    bits = flat.view(torch.uint8) if flat.dtype is torch.bool else flat.view(_INTEGERS[flat.element_size()])
    # Odd weights: two elements that are exchanged give another sum, and no bit is lost modulo 2**64.
    weights = torch.arange(1, 2 * bits.numel(), 2, device=bits.device)
    return (bits.long() * weights).sum()
