"""Scatter, gather and broadcast between devices, which `torch.nn.DataParallel` and `torch.cuda.comm` are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchvet.simulate import devices


def _at(index: int) -> torch.device:
    return torch.device("cpu") if index < 0 else torch.device(devices.BACKEND, devices.index_of(index))


def broadcast(tensor: torch.Tensor, to: Sequence[int]) -> list[torch.Tensor]:
    """A copy on each device; on its own the tensor itself."""
    # `to` gives the tensor itself where it is there already, as CUDA's broadcast does for the first.
    return [tensor.to(_at(index)) for index in to]


def broadcast_out(tensor: torch.Tensor, out: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Into tensors that are there."""
    return [o.copy_(tensor) for o in out]


def broadcast_coalesced(
    tensors: Sequence[torch.Tensor], to: Sequence[int], buffer_size: int
) -> list[list[torch.Tensor]]:
    """All of them on each device, in this order; on the first they are the tensors themselves."""
    return [[t.to(_at(index)) for t in tensors] for index in to]


def scatter(tensor: torch.Tensor, to: Sequence[int], sizes: Any, dim: int, streams: Any) -> list[torch.Tensor]:
    """Pieces of `sizes` along `dim`, or equal ones as `chunk` cuts them, one a device."""
    pieces = tensor.chunk(len(to), dim) if sizes is None else tensor.split(list(sizes), dim)  # type: ignore[no-untyped-call]
    return [piece.to(_at(index)) for piece, index in zip(pieces, to, strict=False)]


def scatter_out(tensor: torch.Tensor, out: Sequence[torch.Tensor], dim: int, streams: Any) -> list[torch.Tensor]:
    """Pieces of the outputs' sizes into them."""
    pieces = tensor.split([o.size(dim) for o in out], dim)  # type: ignore[no-untyped-call]
    return [o.copy_(piece) for o, piece in zip(out, pieces, strict=True)]


def gather(tensors: Sequence[torch.Tensor], dim: int, to: int | None) -> torch.Tensor:
    """One tensor of all on a device; -1 is the host, None the current device."""
    where = _at(devices.current.index if to is None else to)
    return torch.cat([t.to(where) for t in tensors], dim)


def gather_out(tensors: Sequence[torch.Tensor], out: torch.Tensor, dim: int) -> torch.Tensor:
    """Into a tensor that is there."""
    return out.copy_(torch.cat([t.to(out.device) for t in tensors], dim))


def install() -> None:
    """Put them where torch has its own in a build for CUDA."""
    for function in (broadcast, broadcast_out, broadcast_coalesced, scatter, scatter_out, gather, gather_out):
        setattr(torch._C, f"_{function.__name__}", function)
    from torch.nn.parallel import _functions

    _functions._get_stream = lambda device: None  # copies are over when they return
