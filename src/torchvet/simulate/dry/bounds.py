"""Shapes that numbers decide: where those are not known, the largest possible one is taken, and the report says so."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchvet.simulate.arguments import meta_like, replaced
from torchvet.simulate.dry import phantoms, values

_META = torch.device("meta")
taken: dict[str, int] = {}
"""Operators whose results were taken as large as they can be, and how often."""
_INDEXED = frozenset(["index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"])


def _note(name: str) -> None:
    taken[name] = taken.get(name, 0) + 1


def bounded(name: str, args: list[Any]) -> list[Any]:
    """Arguments with the places that masks choose in place of the masks."""
    if name not in _INDEXED:
        return args
    places: list[Any] = []
    for index in args[1]:
        if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
            # A mask of several dimensions stands for as many indices.
            places += [torch.empty(_chosen(name, index), dtype=torch.int64, device=_META)] * index.dim()
        else:
            places.append(index)
    return [args[0], places, *args[2:]]


def _chosen(name: str, mask: torch.Tensor) -> int:
    numbers = values.known(mask)
    if numbers is not None:
        return int(numbers.count_nonzero())
    _note(name)
    # All of it: an upper bound, and `taken` says so.
    return mask.numel()


def _nonzero(func: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    tensor = args[0]
    count = _chosen("nonzero", tensor)
    # Laid out as the kernels do: one dimension's indices behind the other's.
    return torch.empty(tensor.dim(), count, dtype=torch.int64, device=_META).t()


def _masked_select(func: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    tensor, mask = args
    shape = torch.broadcast_shapes(tensor.size(), mask.size())  # type: ignore[no-untyped-call]
    numbers = values.known(mask)
    if numbers is None:
        _note("masked_select")
        count = math.prod(shape)
    else:
        count = int(numbers.expand(shape).count_nonzero())
    return torch.empty(count, dtype=tensor.dtype, device=_META)


def _unique(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`_unique2` and its like: `(values, inverse, counts)`, each of at most as many as there are."""
    tensor = args[0]
    numbers = values.known(tensor)
    if numbers is not None:
        return by_zeros(func, args, kwargs)
    _note("unique")
    return tuple(
        torch.empty(tensor.size() if dtype is None else tensor.numel(), dtype=dtype or torch.int64, device=_META)
        for dtype in ((tensor.dtype, None, torch.int64)[: len(func._schema.returns)])
    )


def by_zeros(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operator that gives no shapes without numbers: by the CPU's kernel, on what is known and on zeros.

    Its results take memory until it returns.
    """
    return replaced(func(*map(_zeros, args), **{n: _zeros(a) for n, a in kwargs.items()}), meta_like)


def _by_lengths(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Packing and padding: the lengths that come with the data decide, and give the second result's numbers."""
    # Lengths are known, as they come with the data; the data is zeros.
    data, lengths = func(*map(_zeros, args), **{n: _zeros(a) for n, a in kwargs.items()})
    meta = meta_like(lengths)
    values.know(meta, lengths)
    return meta_like(data), meta


def _zeros(value: Any) -> Any:
    return replaced(value, _known_or_zeros, torch.device("cpu"))


def _known_or_zeros(tensor: torch.Tensor) -> torch.Tensor:
    numbers = values.known(tensor)
    return phantoms.phantom(tensor.size(), tensor.stride(), tensor.dtype) if numbers is None else numbers


LARGEST = {
    "nonzero": _nonzero,
    "masked_select": _masked_select,
    "_unique": _unique,
    "_unique2": _unique,
    "_pack_padded_sequence": _by_lengths,
    "_pad_packed_sequence": _by_lengths,
}
"""Operators whose meta kernels know no shape, or want lengths from the host."""
