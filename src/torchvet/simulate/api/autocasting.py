"""`torch.autocast("cuda")` on simulated devices: CUDA's lists, its casts, its cache of cast weights.

torch keeps autocast's state for CUDA in every build; only its kernels pass by tensors that are not CUDA's to torch, so
they are replaced.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch

from torchvet.simulate.api import autocast_lists as lists
from torchvet.simulate.arguments import replaced, tensors_in
from torchvet.simulate.tensors import SimulatedTensor

_KEY = "AutocastCUDA"
_cache: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}
"""Casts of weights, until the outermost region ends."""


def _eligible(value: Any) -> bool:
    # float64 stays: the program asked for that precision, and autocast never lowers it.
    return isinstance(value, SimulatedTensor) and value.is_floating_point() and value.dtype is not torch.float64


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return replaced(value, lambda t: _cached(t, dtype) if _eligible(t) and t.dtype is not dtype else t)


def _cached(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A weight is cast once in a region, where the region's cache is on."""
    weight = tensor.dtype is torch.float32 and tensor.requires_grad and tensor.is_leaf and not tensor._is_view()
    if not weight or dtype is not torch.get_autocast_dtype("cuda") or not torch.is_autocast_cache_enabled():
        return tensor.to(dtype)
    # By identity, which is reused: the weak reference tells whether it is still the same tensor.
    known = _cache.get(id(tensor))
    if known is not None and known[0]() is tensor:
        return known[1]
    cast = tensor.to(dtype)
    _cache[id(tensor)] = (weakref.ref(tensor), cast)
    return cast


def _half(args: Any, kwargs: Any) -> torch.dtype:
    return torch.get_autocast_dtype("cuda")


def _float32(args: Any, kwargs: Any) -> torch.dtype:
    return torch.float32


def _widest(args: Any, kwargs: Any) -> torch.dtype:
    found = {t.dtype for t in tensors_in((*args, *kwargs.values())) if _eligible(t)}
    return torch.float32 if torch.float32 in found else torch.get_autocast_dtype("cuda")


def _casting(func: Any, dtype_of: Callable[[Any, Any], torch.dtype], keys: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = dtype_of(args, kwargs)
        # Below autocast's key, as in torch's kernels: what the operator calls is not cast again.
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return func(*[_cast(a, dtype) for a in args], **{n: _cast(a, dtype) for n, a in kwargs.items()})

    return kernel


def _asking(func: Any, keys: Any) -> Callable[..., Any]:
    """Operators that are told the dtype of their result, where the program does not tell them."""
    places = [a.name for a in func._schema.arguments]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(places, args, strict=False)).get("dtype") or kwargs.get("dtype")
        with torch._C._ExcludeDispatchKeyGuard(keys):
            if given is None and args and _eligible(args[0]):
                at = places.index("dtype")
                # A `None` that was passed by place.
                if len(args) > at:
                    args = (*args[:at], torch.float32, *args[at + 1 :])
                else:
                    kwargs["dtype"] = torch.float32
            return func(*args, **kwargs)

    return kernel


def _operator(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def install(library: torch.library.Library) -> None:
    """Replace the kernels, and let the cache end with torch's own."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of every kernel that is replaced
        for names, dtype_of in ((lists.HALF, _half), (lists.FLOAT32, _float32), (lists.WIDEST, _widest)):
            for name in names:
                library.impl(name, _casting(_operator(name), dtype_of, keys), _KEY, allow_override=True)  # type: ignore[no-untyped-call]
        for name in lists.FLOAT32_UNLESS_ASKED:
            library.impl(name, _asking(_operator(name), keys), _KEY, allow_override=True)  # type: ignore[no-untyped-call]
        for name in ("norm.Scalar", "norm.ScalarOpt_dim"):
            library.impl(name, _casting(_operator(name), _float32, keys), _KEY, allow_override=True)  # type: ignore[no-untyped-call]
    clear = torch.clear_autocast_cache

    def clear_autocast_cache() -> None:
        _cache.clear()
        clear()

    # What `autocast.__exit__` calls when the outermost region ends.
    torch.clear_autocast_cache = clear_autocast_cache
